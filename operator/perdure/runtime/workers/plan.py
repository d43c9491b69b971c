"""What to change about the workers of a WorkerDeployment, given its spec, what exists, and the time. Pure.

Each version of the code has a Deployment. A new version starts one pod: it gets tasks only once its workers have polled all task
queues, so code that does not start never gets a run. Then it becomes the current version, after the ramp steps. The version that
it replaces keeps the runs that are pinned to it, and is removed some time after the last of them has closed.

Tasks wait in their task queues while a version has no pods, so nothing is lost by scaling to zero. A task that waits means that
no worker has a free slot: workers with free slots poll, and a polling worker gets the task immediately. The only exception is a
rate limit, under which tasks and polls wait at the same time; then more pods would not help.

    spec, facts, now ─▶ plan() ─▶ Plan: pods of each version, Deployments and versions to remove, routing, when to look again
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Self

from perdure.api.kinds.workerdeployment import Routing, WorkerDeploymentSpec

PATIENCE = timedelta(seconds=10)
"""A version whose pods are all busy gets another one if a task has waited for so long, even if few tasks wait."""
START = timedelta(minutes=1)
"""How long new workers may take until they poll. Until then, a version gets no further pods unless a worker has got a task."""
CHECK_STARTING = timedelta(seconds=3)
"""Interval between checks of a version whose pods start."""
CHECK_RUNNING = timedelta(seconds=10)
"""Interval between checks of the load of a version with pods."""
CHECK_DRAINING = timedelta(minutes=1)
"""Interval between checks of the open runs on an old version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """The Deployment of a version."""

    replicas: int
    """The number of pods that it should have."""
    ready: int
    """The number of pods that are ready."""
    template: str
    """The hash of the pod template from which it was made."""
    created: datetime
    problem: str = ""
    """Why its pods do not start, or fail; empty if there is no problem."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The tasks of a version."""

    waiting: int = 0
    """The number of tasks that wait for a worker."""
    since: datetime | None = None
    """When the oldest of them was added; None if no task waits."""
    limited: bool = False
    """Whether workers poll although tasks wait, because a task queue has a rate limit."""
    in_progress: int = 0
    """The number of tasks that workers have."""
    last_used: datetime | None = None
    """When a worker last got a task; None: not that this process knows."""

    @property
    def idle(self) -> bool:
        """Whether there is no task."""
        return not self.waiting and not self.in_progress

    def __add__(self, other: "Load") -> "Load":
        """The tasks of two parts of a version."""
        return Load(
            waiting=self.waiting + other.waiting,
            since=min((each for each in (self.since, other.since) if each), default=None),
            limited=self.limited or other.limited,
            in_progress=self.in_progress + other.in_progress,
            last_used=max((each for each in (self.last_used, other.last_used) if each), default=None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """What is known of a version of the workers."""

    build_id: str
    deployed: Deployed | None = None
    """Its Deployment; None if it has none."""
    known: bool = False
    """Whether its workers have ever polled."""
    registered: bool = False
    """Whether its workers have polled all task queues."""
    polled: bool = False
    """Whether its workers poll, or have just polled."""
    deactivated: bool = False
    """Whether it was current or ramping, and no longer is."""
    drained: bool = False
    """Whether no open run is pinned to it, and none that was routed to it before can still be."""
    open_runs: int = 0
    """The number of open runs that are pinned to it."""
    load: Load = Load()
    active: datetime
    """When it last had a task, as far as this process knows; not earlier than the start of the process."""
    strained: datetime
    """When a task last waited for one of its workers, or when its number of pods last changed; the same."""
    scaled: datetime
    """When its number of pods last changed; the same."""
    drained_time: datetime | None = None
    """Since when it is drained, as the status says; None if it says nothing."""

    @classmethod
    def unseen(cls, build_id: str, now: datetime) -> Self:
        """A version of which nothing is known."""
        return cls(build_id=build_id, active=now, strained=now, scaled=now)

    @property
    def unused(self) -> bool:
        """Whether nothing needs it any more."""
        return (self.drained or not self.deactivated) and not self.open_runs and self.load.idle


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What exists of a WorkerDeployment."""

    versions: Mapping[str, Version]
    """The versions by build ID."""
    current: str = ""
    """Build ID of the version that gets new runs; empty: unversioned workers do."""
    ramping: str | None = None
    """Build ID of the version that gets a share; empty: unversioned workers; None: there is none."""
    percentage: float = 0.0
    """The share, in percent."""
    ramped: datetime | None = None
    """When the share was last changed."""
    loads_known: bool = True
    """Whether the members of a fleet tell each other which tasks wait; not before an upgrade to 0.2 is finished."""


@dataclass(frozen=True, slots=True)
class Route:
    """A change of the routing."""

    build_id: str
    """The version; empty with a percentage of zero: no version is ramping any more."""
    percentage: int | None = None
    """Its share of the new runs; None: it becomes current."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to change."""

    replicas: Mapping[str, int | None]
    """The number of pods of each version to keep, by build ID; None: leave it to an autoscaler."""
    update: bool = False
    """Whether to replace the pod template of the version in the spec, whose build ID has stayed the same."""
    remove: Sequence[str] = ()
    """Build IDs of the versions whose Deployments to delete."""
    forget: Sequence[str] = ()
    """Build IDs of the versions without a Deployment to remove from the worker deployment."""
    route: Route | None = None
    """How to change the routing; None: not at all."""
    drained: Mapping[str, datetime] = field(default_factory=dict)
    """Since when versions are drained, for the status."""
    due: datetime | None = None
    """When to plan again; None: when something changes."""


def plan(spec: WorkerDeploymentSpec, build_id: str, template: str, facts: Facts, now: datetime) -> Plan:
    """Decide what to change.

    Args:
        spec: The spec.
        build_id: The build ID of the version in the spec.
        template: The hash of its pod template.
        facts: What exists.
        now: The time.
    """
    target = facts.versions.get(build_id) or Version.unseen(build_id, now)
    routed = {facts.current, facts.ramping, build_id}
    replicas: dict[str, int | None] = {}
    remove, forget = [], []
    drained: dict[str, datetime] = {}
    for version in {**facts.versions, build_id: target}.values():
        build = version.build_id
        if build not in routed and version.unused:
            if version.deactivated:
                drained[build] = version.drained_time or now
            over = (
                not (version.deactivated and version.deployed) or drained[build] + spec.versioning.sunset_delay <= now
            )
            if over and version.deployed is not None:
                remove.append(build)
            elif over and version.known and not version.polled:
                forget.append(build)
        if build not in remove and (version.deployed is not None or build == build_id):
            replicas[build] = _replicas(spec, version, now, serves=build in routed, loads_known=facts.loads_known)
    return Plan(
        replicas=replicas,
        update=target.deployed is not None and target.deployed.template != template,
        remove=remove,
        forget=forget,
        route=_route(spec, target, facts, now),
        drained=drained,
        due=min(_due(spec, target, facts, replicas, drained, now), default=None),
    )


# Pods


def _replicas(
    spec: WorkerDeploymentSpec, version: Version, now: datetime, *, serves: bool, loads_known: bool
) -> int | None:
    """The number of pods of a version; None to leave it to an autoscaler.

    Args:
        spec: The spec.
        version: The version.
        now: The time.
        serves: Whether it is, or is about to be, the current or the ramping version.
        loads_known: Whether all tasks that wait are known; if not, a version keeps a pod for those of other members.
    """
    fewest = spec.min_replicas if serves else 0
    if version.registered and not loads_known:
        fewest = max(1, fewest)
    if serves and spec.replicas is not None:
        if version.deployed is not None and version.registered and version.deployed.replicas == spec.replicas:
            return None
        return spec.replicas if version.registered else max(1, spec.replicas)
    if not version.registered:  # one pod shows whether the code starts; an old version that never did needs none
        return max(1, fewest) if serves else 0
    have = version.deployed.replicas if version.deployed is not None else 0
    if version.deployed is not None and version.deployed.problem and not version.deployed.ready:
        unused = version.load.idle and now - version.active >= spec.idle_timeout
        return fewest if unused else max(1, fewest)  # more of what fails would not help
    if not have:
        return _within(spec, ceil(version.load.waiting / spec.target_backlog), fewest)
    return _within(spec, _scaled(spec, version, have, now), fewest)


def _within(spec: WorkerDeploymentSpec, wanted: int, fewest: int) -> int:
    return min(max(wanted, fewest), max(spec.max_replicas, fewest))


def _scaled(spec: WorkerDeploymentSpec, version: Version, have: int, now: datetime) -> int:
    """The number of pods of a version that has some, regardless of the limits."""
    load, ready = version.load, version.deployed.ready if version.deployed is not None else 0
    if load.waiting:
        up = load.last_used is not None and load.last_used >= version.scaled
        if load.limited or ready < have or not (up or now - version.scaled >= START):
            return have  # the pods that start may be enough
        more = load.waiting // spec.target_backlog
        late = load.since is not None and now - load.since >= PATIENCE
        return have + (more or int(late))
    if load.in_progress:
        return have  # nobody knows which pods have the tasks, so none is stopped
    if now - version.active >= spec.idle_timeout:
        return 0
    if now - version.strained >= spec.idle_timeout:
        return max(1, have // 2)
    return have


# Routing


def _route(spec: WorkerDeploymentSpec, target: Version, facts: Facts, now: datetime) -> Route | None:
    """How to change the routing so that the version in the spec gets all new runs; None if it does, or must wait."""
    build, versioning = target.build_id, spec.versioning
    if versioning.routing is Routing.MANUAL or not target.registered:
        return None
    if facts.current == build:
        return None if facts.ramping is None else Route("", 0)  # a rollback ends the ramp of the newer version
    if not facts.current:  # no version can keep the rest
        return Route(build)
    if facts.ramping != build:
        return Route(build, versioning.steps[0].percentage) if versioning.steps else Route(build)
    at = next((i for i, step in enumerate(versioning.steps) if step.percentage >= facts.percentage), None)
    if at is None or facts.ramped is None:
        return Route(build)
    step = versioning.steps[at]
    if step.percentage > facts.percentage:  # the steps have changed
        return Route(build, step.percentage)
    if now < facts.ramped + step.pause:
        return None
    following = versioning.steps[at + 1 :]
    return Route(build, following[0].percentage) if following else Route(build)


def next_step(spec: WorkerDeploymentSpec, facts: Facts) -> datetime | None:
    """When the ramping version gets its next share; None if no version ramps by the steps of the spec."""
    for step in spec.versioning.steps:
        if step.percentage == facts.percentage and facts.ramped is not None and facts.ramping:
            return facts.ramped + step.pause
    return None


# When to plan again


def _due(
    spec: WorkerDeploymentSpec,
    target: Version,
    facts: Facts,
    replicas: Mapping[str, int | None],
    drained: Mapping[str, datetime],
    now: datetime,
) -> Iterator[datetime]:
    if not target.registered:
        yield now + CHECK_STARTING
    for build, wanted in replicas.items():
        version = facts.versions.get(build, target)
        ready = version.deployed.ready if version.deployed is not None else 0
        if wanted != 0:
            yield now + (CHECK_STARTING if wanted is not None and wanted > ready else CHECK_RUNNING)
    if spec.versioning.routing is Routing.AUTOMATIC and (step := next_step(spec, facts)) is not None:
        yield max(step, now + CHECK_STARTING)
    for since in drained.values():
        yield max(since + spec.versioning.sunset_delay, now + CHECK_STARTING)
    if facts.versions.keys() - {facts.current, target.build_id}:
        yield now + CHECK_DRAINING


def with_memory(version: Version, before: Version | None, now: datetime) -> Version:
    """A version with what earlier plans of this process have seen: when it last had a task, and when tasks last waited.

    Args:
        version: The version.
        before: The same version in the last plan; None if there is none.
        now: The time.
    """
    load = version.load
    known = [each for each in (load.last_used, before.active if before is not None else now) if each is not None]
    pods = None if version.deployed is None else version.deployed.replicas
    had = None if before is None or before.deployed is None else before.deployed.replicas
    scaled = now if before is None or pods != had else before.scaled
    strained = now if before is None or load.waiting else max(before.strained, scaled)
    return replace(version, active=max(known) if load.idle else now, strained=strained, scaled=scaled)
