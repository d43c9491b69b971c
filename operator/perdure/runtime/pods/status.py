"""What the status of a pod says: its containers, how the activity in it ended, and why a pod has not started its activity.

The activity may be several containers together, some of which wait for others (see `commands.py`).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from perdure.api import labels
from perdure.api.times import read_kubernetes_time
from perdure.runtime.attempts import KubeObject
from perdure.runtime.pods import payloads
from perdure.runtime.pods.commands import NOT_NEEDED, STOPPED

SIGNALS: Final = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}
"""Linux signal numbers, whatever system the operator runs on."""

_DEFAULT_GRACE: Final = 30
"""Seconds that Kubernetes gives containers to stop unless the pod's spec sets a grace period."""

BY_SIGNAL: Final = 128
"""The exit code of a process that a signal ended is this plus the signal's number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedContainer:
    """A container that has ended."""

    name: str
    exit_code: int
    reason: str
    """Kubernetes' reason: `Completed`, `Error`, `OOMKilled`, `StartError`, …; empty if there is none."""
    message: str
    """The termination message from the container, or the end of its log if it failed without writing one."""
    signal: str | None
    """The signal that ended it, by name."""
    started: datetime | None
    finished: datetime | None

    @property
    def status_unknown(self) -> bool:
        """Whether the node does not know how the container ended.

        The kubelet (137), or containerd after a reboot (255), then invents the exit code.
        """
        return self.reason in {"ContainerStatusUnknown", "Unknown"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStatus:
    """The parsed status of a pod."""

    name: str
    uid: str
    node: str | None
    phase: str
    reason: str
    """Why the pod as a whole failed: `Evicted`, `DeadlineExceeded`, `OutOfcpu`, …; mostly empty."""
    message: str
    conditions: tuple[dict[str, Any], ...]
    containers: tuple[dict[str, Any], ...]
    init_containers: tuple[dict[str, Any], ...]
    container_count: int
    """Number of containers of all kinds; they share the space for termination messages."""
    sidecars: frozenset[str]
    """Init containers that run alongside the others; their end does not affect the outcome."""
    delete_requested: datetime | None
    """When the deletion of the pod was first requested; None if it was not."""
    delete_deadline: datetime | None
    """When the grace period of a deleted pod's containers ends."""
    stopped: datetime | None
    """When the operator had the containers stopped without deleting the pod; None if it has not."""
    grace: timedelta
    """The grace period in the spec of the pod."""
    active_deadline: datetime | None
    """When the node stops the pod by itself."""

    @classmethod
    def of(cls, pod: KubeObject) -> "PodStatus":
        """Read a pod.

        Args:
            pod: A Pod as the API server returned it.

        Returns:
            Its status.
        """
        metadata, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
        deadline = read_kubernetes_time(metadata.get("deletionTimestamp"))
        # The kubelet's own delete, after the last container ended, sets the period to 0 and moves the time stamp to that
        # moment if it comes early. Then only the pod's usual grace period says how long before it began.
        usual = spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE)
        grace = metadata.get("deletionGracePeriodSeconds") or usual
        init = spec.get("initContainers") or ()
        counted = (spec.get("containers") or (), init, spec.get("ephemeralContainers") or ())
        return cls(
            name=str(metadata.get("name")),
            uid=str(metadata.get("uid")),
            node=spec.get("nodeName"),
            phase=str(status.get("phase") or "Pending"),
            reason=str(status.get("reason") or ""),
            message=str(status.get("message") or ""),
            conditions=tuple(status.get("conditions") or ()),
            containers=tuple(status.get("containerStatuses") or ()),
            init_containers=tuple(status.get("initContainerStatuses") or ()),
            container_count=sum(map(len, counted)),
            sidecars=frozenset(str(item.get("name")) for item in init if item.get("restartPolicy") == "Always"),
            delete_requested=None if deadline is None else deadline - timedelta(seconds=grace),
            delete_deadline=deadline,
            stopped=read_kubernetes_time((metadata.get("annotations") or {}).get(labels.STOPPED_ANNOTATION)),
            grace=timedelta(seconds=usual),
            active_deadline=_plus(read_kubernetes_time(status.get("startTime")), spec.get("activeDeadlineSeconds")),
        )

    def condition(self, kind: str) -> dict[str, Any] | None:
        """Find a condition.

        Args:
            kind: The type of the condition.

        Returns:
            The condition; None if the pod has none of that type.
        """
        return next((item for item in self.conditions if item.get("type") == kind), None)

    def running_since(self, container: str) -> datetime | None:
        """Return when a container started, if it is running.

        Args:
            container: The name of the container.

        Returns:
            The time; None if it does not run.
        """
        running = _state(self.containers, container).get("running")
        return None if running is None else read_kubernetes_time(running.get("startedAt"))

    def started(self, container: str) -> datetime | None:
        """Return when a container started, whether it still runs or not.

        Args:
            container: The name of the container.

        Returns:
            The time; None if it has not started.
        """
        ended = self.ended(container)
        return self.running_since(container) if ended is None else ended.started

    def ended(self, container: str) -> EndedContainer | None:
        """Return how a container ended.

        Args:
            container: The name of the container.

        Returns:
            Its end; None if it has not started, or runs.
        """
        terminated = _state(self.containers, container).get("terminated")
        return None if terminated is None else _ended(container, terminated)

    def ended_sidecar(self, container: str) -> EndedContainer | None:
        """Return how a sidecar ended.

        Args:
            container: The name of the container.

        Returns:
            Its end; None if it has not started, or runs.
        """
        terminated = _state(self.init_containers, container).get("terminated")
        return None if terminated is None else _ended(container, terminated)

    def failed_init_container(self) -> EndedContainer | None:
        """Find the init container that kept the others from starting.

        Returns:
            The first with a nonzero exit code; None if all have succeeded so far.
        """
        for status in self.init_containers:
            terminated = (status.get("state") or {}).get("terminated")
            if terminated is not None and terminated.get("exitCode") != 0 and status.get("name") not in self.sidecars:
                return _ended(str(status.get("name")), terminated)
        return None

    def has_run(self) -> bool:
        """Return whether any container was ever started.

        Returns:
            False if the pod has only waited: for a node, volumes, or images.
        """
        states = [status.get("state") or {} for status in (*self.containers, *self.init_containers)]
        return any(
            "running" in state or read_kubernetes_time((state.get("terminated") or {}).get("startedAt")) is not None
            for state in states
        )


def _plus(time: datetime | None, seconds: int | None) -> datetime | None:
    return None if time is None or seconds is None else time + timedelta(seconds=seconds)


def _state(statuses: tuple[dict[str, Any], ...], container: str) -> dict[str, Any]:
    found = next((item for item in statuses if item.get("name") == container), {})
    state: dict[str, Any] = found.get("state") or {}
    return state


def _ended(name: str, terminated: dict[str, Any]) -> EndedContainer:
    # A missing exit code does not prove success: Kubernetes always writes it, even if it is 0.
    exit_code = terminated.get("exitCode")
    code = exit_code if isinstance(exit_code, int) else -1
    return EndedContainer(
        name=name,
        exit_code=code,
        reason=str(terminated.get("reason") or ""),
        message=str(terminated.get("message") or ""),
        signal=SIGNALS.get(terminated.get("signal") or code - BY_SIGNAL),
        started=read_kubernetes_time(terminated.get("startedAt")),
        finished=read_kubernetes_time(terminated.get("finishedAt")),
    )


@dataclass(frozen=True, slots=True)
class ContainerGroup:
    """The containers that are the activity of a pod: usually one."""

    main: str
    """The container that returns the result."""
    needs: Mapping[str, Sequence[str]]
    """All of them, with the containers that each one needs."""

    @classmethod
    def of(cls, pod: KubeObject, main: str) -> "ContainerGroup":
        """Return the group of a pod.

        Args:
            pod: A Pod as the API server returned it.
            main: Name of the container that returns the result.
        """
        note = ((pod.get("metadata") or {}).get("annotations") or {}).get(labels.NEEDS_ANNOTATION)
        needs, _ = payloads.decode(note or "")
        if not isinstance(needs, dict) or main not in needs:
            return cls(main, {main: ()})
        return cls(main, {name: others if isinstance(others, list) else () for name, others in needs.items()})

    def ended(self, status: PodStatus) -> EndedContainer | None:
        """Return how the activity ended: the end of a container that failed, or that of the main container if all have succeeded.

        A container whose shell reports the failure of another one is not the one that failed. But one can fail while it waits,
        for example because its image has no shell. Of those that ended in the same second, the API server does not tell which
        was first; one that did not wait was.

        Args:
            status: The status of the pod.

        Returns:
            The end; None if the activity has not ended.
        """
        ends = {name: status.ended(name) for name in self.needs}
        succeeded = {name for name, end in ends.items() if end is not None and end.exit_code == 0}
        waited = {name for name, others in self.needs.items() if not succeeded.issuperset(others)}
        failed = [
            (end.finished is None, end.finished, name in waited, end)
            for name, end in ends.items()
            if end is not None
            and end.exit_code != 0
            and (end.exit_code not in {NOT_NEEDED, STOPPED} or name not in waited)
        ]
        if failed:
            *_, first = min(failed, key=lambda each: each[:3])
            return first
        return ends[self.main] if len(succeeded) == len(ends) else None

    def all_ended(self, status: PodStatus) -> bool:
        """Whether none of its containers runs or will run any more.

        Args:
            status: The status of the pod.
        """
        return all(status.ended(name) is not None for name in self.needs)

    def at_work(self, status: PodStatus) -> tuple[str, ...]:
        """Return its containers that run, and do not wait for others any more.

        Args:
            status: The status of the pod.
        """
        return tuple(
            name
            for name, others in self.needs.items()
            if status.started(name) is not None
            and status.ended(name) is None
            and all(status.ended(other) is not None for other in others)
        )

    def running_since(self, status: PodStatus) -> datetime | None:
        """Return when the activity started, if it is running: when the last of its containers started.

        Args:
            status: The status of the pod.

        Returns:
            The time; None if a container has not started, or the activity has ended.
        """
        if self.ended(status) is not None:
            return None
        starts = [status.started(name) for name in self.needs]
        return None if None in starts else max(start for start in starts if start is not None)


_LONGEST_REASON: Final = 512
_ORDINARY: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""Reasons of the kubelet during a normal start."""
_NO_NODE_YET: Final = "waiting for a node"
_INIT: Final = "init container "
_SIDECAR: Final = "sidecar "


def waiting_reason(pod: KubeObject, main: str) -> str | None:
    """Return why a pod waits, as shown with a pending activity.

    Args:
        pod: A Pod as the API server returned it.
        main: Name of the container that returns the result.

    Returns:
        For example `container activity: ImagePullBackOff: Back-off pulling image "x"`; None if the activity's container
        has started or the pod has ended.
    """
    status = PodStatus.of(pod)
    group = ContainerGroup.of(pod, main)
    if status.phase in {"Succeeded", "Failed"} or group.running_since(status) or group.ended(status):
        return None
    scheduled = status.condition("PodScheduled")
    if scheduled is not None and scheduled.get("status") == "False":
        return _sentence(str(scheduled.get("reason") or "Unschedulable"), scheduled)
    waits = [(item, (item.get("state") or {}).get("waiting")) for item in (*status.init_containers, *status.containers)]
    blocked = [(item, wait) for item, wait in waits if wait and wait.get("reason") not in _ORDINARY | {None}]
    if blocked:
        item, wait = blocked[0]
        return _sentence(f"container {item.get('name')}: {wait['reason']}", wait)
    for item in status.init_containers:
        if "running" not in (item.get("state") or {}):
            continue
        if item.get("name") not in status.sidecars:
            return f"{_INIT}{item.get('name')} is running"
        if item.get("started") is False:
            return f"{_SIDECAR}{item.get('name')} is not ready"
    return "ContainerCreating" if status.node is not None else _NO_NODE_YET


def is_problem(reason: str) -> bool:
    """Return whether a problem keeps the pod from starting, rather than a normal phase of its start.

    Args:
        reason: The result of `waiting_reason`.

    Returns:
        True, for example, if an image cannot be pulled or no node has room.
    """
    return reason not in {*_ORDINARY, _NO_NODE_YET} and not reason.startswith((_INIT, _SIDECAR))


IMAGE_PULL_FAILED: Final = "ImagePullBackOff"
"""The type of failures caused by a missing image; the kubelet uses other reasons for single attempts."""
_IMAGE_REASONS: Final = frozenset(
    {"ErrImagePull", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"}
)
_NEVER: Final = frozenset({"InvalidImageName"})
"""Reasons that never resolve: only a different pod would start."""


def permanent_reason(pod: KubeObject) -> str | None:
    """Return the reason for which a pod can never start.

    Args:
        pod: A Pod as the API server returned it.

    Returns:
        Kubernetes' reason, `InvalidImageName`; None if the pod may still start.
    """
    status = PodStatus.of(pod)
    reasons = (
        ((item.get("state") or {}).get("waiting") or {}).get("reason")
        for item in (*status.init_containers, *status.containers)
    )
    return next((reason for reason in reasons if reason in _NEVER), None)


def kubernetes_reason(reason: str | None) -> str | None:
    """Return Kubernetes' reason in a result of `waiting_reason`, such as `ImagePullBackOff`; None if it has none."""
    match = re.match(r"container \S+: ([A-Za-z]+)", reason or "")
    if match is None:
        return None
    return IMAGE_PULL_FAILED if match[1] in _IMAGE_REASONS else match[1]


def remedy(reason: str | None) -> str:
    """Return what to do about a pod that does not start for this reason."""
    match reason:
        case "InvalidImageName":
            return "fix the image name"
        case "ImagePullBackOff":
            return "check that the image exists and that the node can pull it (`imagePullSecrets`)"
        case "CreateContainerConfigError":
            return "check that the ConfigMaps, Secrets, and users that the container names exist"
        case _:
            return "`kubectl describe pod` shows more"


def _sentence(subject: str, source: dict[str, Any]) -> str:
    message = str(source.get("message") or "")
    return (f"{subject}: {message}" if message else subject)[:_LONGEST_REASON]
