"""One simulation: a cluster in memory, operators on it, and injected faults, all from one seed."""

import asyncio
import gc
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, cast

import orjson

from perdure.api.crdgen import KINDS
from perdure.api.state_versions import NEWEST
from perdure.controller.capacity import CapacitySettings
from perdure.controller.dispatch.hibernation import HibernationSettings
from perdure.controller.upgrades import UpgradeSettings
from perdure.controller.workflows.revisions import RevisionRetention
from perdure.frontend.settings import Settings
from perdure.runtime.retention import Limits
from perdure.simulation.cluster.kubelet import ContainerExit
from perdure.simulation.cluster.loop import DeadlockError, SpinningError
from perdure.simulation.cluster.process import Trace, task_factory
from perdure.simulation.cluster.store import Object, ObjectKey, Write
from simulated.archive import SimulatedArchive
from simulated.checks.checker import Checker
from simulated.checks.fleet import FleetChecker
from simulated.checks.run_facts import with_definition
from simulated.ids import seeded_ids
from simulated.kubelet import SlowKubelet, Stops
from simulated.loop import ShuffledLoop
from simulated.sdk.frontends import Frontends
from simulated.sdk.peers import address_of
from simulated.server import InterceptedServer
from support.faulty.faults import Faults
from support.faulty.newer import HOLD_BACK, NEWER, OLDER, Forms, Life
from support.faulty.operators import FaultyOperator

if TYPE_CHECKING:
    from perdure.archive.rows import Archive

RECORD = "perdure-state-version"
"""The ConfigMap with the record of upgrades."""
API_VERSION = "perdure.dev/v1alpha1"
_SETTLE_SECONDS = 150
"""After everything has closed: until the operator has nothing left to tidy up."""
_IDLE_SECONDS = 300
_RECOVERY_SECONDS = 60
_IDLE_WRITES = 5
_MIXED = (OLDER, NEWEST, NEWEST, NEWER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The parts of one simulation."""

    seed: int
    operators: int = 1
    fleet: bool = False
    """Whether the operators share the work."""
    faults: float = 0.05
    """Share of requests that fail."""
    kills: int = 4
    mixed: bool = False
    """Whether operators are replaced by older and newer ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of the simulation."""

    violations: list[str]
    seconds: float
    """Of virtual time."""
    runs: int
    pods: int
    writes: int
    digest: str
    """Of all writes, in order, with what they stored: the same for the same seed."""


@dataclass
class World:
    """The cluster, as scenarios use it."""

    setting: Setting
    loop: ShuffledLoop
    server: InterceptedServer
    checker: Checker
    faults: Faults
    tracer: Trace | None
    """Takes the timeline, if anyone wants it."""
    operators: list[FaultyOperator] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    """Of all processes that there were."""
    limits: Limits = field(default_factory=Limits)
    """The limits of the namespace's finished runs."""
    archive: SimulatedArchive | None = None
    """The archive of finished runs; None without an archive."""
    capacity: CapacitySettings = field(default_factory=CapacitySettings)
    """The limits of open runs, and of the memory of operators."""
    hibernation: HibernationSettings = field(default_factory=HibernationSettings)
    """When runs hibernate."""
    revisions: RevisionRetention = field(default_factory=RevisionRetention)
    """How long revisions are kept that no run refers to."""
    script: Callable[[Object], ContainerExit] = lambda _: ContainerExit(after=1)
    stops: Stops = lambda _: None
    frontends: Frontends | None = None
    """The frontends of the operators; None: they serve no SDKs."""
    clients: list[asyncio.Task[None]] = field(default_factory=list)
    """The clients of the frontends, which end by themselves."""
    lives: dict[str, Life] = field(default_factory=dict)
    """All processes that there were, by name; of those with the same name, the last one."""
    oldest: int = OLDER
    """The newest state version that the oldest operators among mixed versions read."""
    upgrades: UpgradeSettings | None = None
    """The settings of upgrades; None: all operators always write the newest state version that they read."""
    _started: int = 0
    """How many processes there were."""
    _calm_at: float = 0.0
    _fleet: FleetChecker | None = None
    _checking: asyncio.Task[None] | None = None

    def random(self, use: str) -> Random:
        """A source of chance of its own for each use, so that one does not change another."""
        return Random(f"{self.setting.seed}/{use}")

    def trace(self, line: str, about: str) -> None:
        """Add a line to the timeline, and the text to find it by."""
        if self.tracer is not None:
            self.tracer(line, about)

    def share_versions(self) -> Forms:
        """Have the operators agree on the state version that they write, and check it."""
        self.upgrades = UpgradeSettings(record=RECORD, hold_back=timedelta(seconds=HOLD_BACK))
        forms = Forms(self.lives, self.checker.fail, fleet=self.setting.fleet)
        self.server.observers.append(forms.observe)
        return forms

    # Actions of users

    def create(self, kind: str, name: str, spec: Object, **meta: Any) -> Object:
        """Create an object of Perdure."""
        plural = next(each.info.plural for each in KINDS if each.__name__ == kind)
        body = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}
        self.trace(f"user creates {kind} {name}", name)
        return self.server.create(plural, body)

    def operate(self, name: str, run: str, **what: Any) -> None:
        """Create an Operation on a run."""
        self.create("Operation", name, {"target": {"kind": "WorkflowRun", "name": run}, **what})

    def edit(self, plural: str, name: str, change: Callable[[Object], None]) -> None:
        """Change an object, if it exists."""
        self.trace(f"user edits {plural} {name}", name)
        self.server.update(ObjectKey(plural, "default", name), change)

    def delete(self, plural: str, name: str) -> None:
        """Delete an object, if it exists."""
        key = ObjectKey(plural, "default", name)
        if key in self.server.objects:
            self.trace(f"user deletes {plural} {name}", name)
            self.server.delete(key)

    def run(self, name: str) -> Object:
        """A WorkflowRun as it is now, with its definition."""
        return self._complete(self.server.get(ObjectKey("workflowruns", "default", name)))

    def run_as_stored(self, name: str) -> Object:
        """A WorkflowRun as it is now, without what it only refers to."""
        return self.checker.decoded.of(self.server.get(ObjectKey("workflowruns", "default", name)))

    def runs(self) -> dict[str, Object]:
        """All WorkflowRuns, by name."""
        return {obj["metadata"]["name"]: self._complete(obj) for obj in self.server.of("workflowruns")}

    def _complete(self, run: Object) -> Object:
        """A stored run with the values of its status, and the definition that it refers to."""
        return with_definition(self.server, self.checker.decoded.of(run))

    # Faults of operators

    def begin(self, *, reads: int | None = None) -> None:
        """Start the number of operators in the setting; see `start`."""
        self.checker.removals.limits = self.limits
        for _ in range(self.setting.operators):
            self.start(reads=reads)
        if self.setting.fleet:
            self._fleet = FleetChecker(self.operators, self.faults, self.checker.fail)
            self._checking = self.loop.create_task(self._fleet.run())

    def stop_checking(self) -> None:
        """No longer check who owns what: all operators end."""
        if self._checking is not None:
            self._checking.cancel()

    def start(self, frontend: Settings | None = None, *, name: str = "", reads: int | None = None) -> FaultyOperator:
        """Start one more operator; with the settings of a frontend if Temporal SDKs are served.

        With the ``name`` of one that was killed, it is the same pod with a new container. ``reads``: the newest state
        version that it reads; None: today's, or, among mixed versions, any.
        """
        random = self.random(f"operator {self._started}")
        name = name or f"op-{self._started}"
        if reads is None:
            some = [each for each in _MIXED if each >= self.oldest]
            reads = self.random(f"version {self._started}").choice(some) if self.setting.mixed else NEWEST
        self.lives[name] = Life(reads, self.loop.time())
        self._started += 1
        self.names.add(name)
        if frontend is None and self.frontends is not None:
            frontend = self.frontends.settings(name)
        operator = FaultyOperator(
            name,
            self.loop,
            random,
            self.server,
            self.faults,
            lag=random.choice([0.01, 0.1, 1.0, 3.0]),
            skew=random.choice([0.0, 0.0, random.uniform(-0.5, 0.5)]),
            limits=self.limits,
            capacity=self.capacity,
            hibernation=self.hibernation,
            revisions=self.revisions,
            trace=self.tracer,
            crashed=self.checker.fail,
            frontend=frontend,
            fleet="fleet" if self.setting.fleet else "",
            address=address_of(name) if self.setting.fleet and self.frontends is not None else "",
            reads=reads,
            upgrades=self.upgrades,
            archive=cast("Archive | None", self.archive),
        )
        if frontend is not None and self.frontends is not None:
            self.frontends.serve(operator, fleet=self.setting.fleet)
        self.operators.append(operator)
        return operator

    async def trouble(self, lasting: float) -> None:
        """Kill, freeze and disconnect operators for a while."""
        random = self.random("trouble")
        if self.setting.faults and random.random() < 0.5:
            begin = random.uniform(0, lasting)
            end = begin + random.choice([2, 10, 40])
            self.faults.outages.append((begin, end))
            self._calm_at = end
        for _ in range(self.setting.kills):
            await asyncio.sleep(random.uniform(0, 2 * lasting / self.setting.kills))
            victim = random.choice(self.operators)
            self._disturb()
            match random.choice(["kill", "kill", "kill", "interrupt", "freeze"]):
                case "kill":
                    same_pod = self.setting.fleet and self.random(f"restart {self._started}").random() < 0.5
                    await self.replace(
                        victim, random.choice([0, random.uniform(0, 5)]), name=victim.name if same_pod else ""
                    )
                case "interrupt":
                    self._upset(victim.interrupt, random.choice([1, 5, 70]))
                case _:
                    self._upset(victim.freeze, random.uniform(1, 60))

    async def replace(self, victim: FaultyOperator, after: float, *, name: str = "", reads: int | None = None) -> None:
        """Kill an operator, and start another one some seconds later."""
        await victim.kill()
        self.operators.remove(victim)
        self.lives[victim.name].end = self.loop.time()
        await asyncio.sleep(after)
        if name and reads is None:
            reads = self.lives[name].reads  # the same pod has the same image
        self.start(name=name, reads=reads)
        self._disturb()
        self._calm_at = max(self._calm_at, self.loop.time())

    def _disturb(self) -> None:
        if self._fleet is not None:
            self._fleet.disturb()

    def _upset(self, do: Callable[[float], None], seconds: float) -> None:
        do(seconds)
        self._calm_at = max(self._calm_at, self.loop.time() + seconds)

    async def calm(self, earliest: float) -> None:
        """Wait until that time, and until every operator has had time to finish its pending work."""
        await self._finish_upgrade()
        await asyncio.sleep(max(earliest, self._calm_at + _RECOVERY_SECONDS) - self.loop.time())

    async def _finish_upgrade(self) -> None:
        """Replace the older operators: only the newest can finish what it has begun."""
        if self.setting.mixed:
            for operator in [each for each in self.operators if each.reads < NEWER]:
                await self.replace(operator, 1, reads=NEWER)

    # Coming to rest

    async def rest(self, limit: float = 2_000) -> None:
        """Wait until every client has ended, every run has closed, every Operation is answered, and nothing more is written."""
        await self._finish_upgrade()
        await asyncio.gather(*self.clients, return_exceptions=True)
        end = self.loop.time() + limit
        while waiting := [*self._unfinished()]:
            if self.loop.time() > end:
                self.checker.fail(f"unfinished: {', '.join(waiting[:5])}")
                break
            await asyncio.sleep(5)
        await asyncio.sleep(_SETTLE_SECONDS)
        before = self._written()
        await asyncio.sleep(_IDLE_SECONDS)
        if (written := self._written() - before) > _IDLE_WRITES:
            self.checker.fail(f"not idle: {written} writes in {_IDLE_SECONDS} s")
        self.checker.finish()

    def _unfinished(self) -> list[str]:
        found = []
        for plural in ("workflowruns", "operations"):
            for obj in self.server.of(plural):
                status = obj.get("status") or {}
                if not status.get("completionTime"):
                    reported = [each["message"] for each in status.get("conditions") or () if each.get("message")]
                    found.append(f"{plural} {obj['metadata']['name']} {status.get('phase')} {reported[:1]}")
        return found

    def _written(self) -> int:
        return sum(self.checker.writes[name] for name in self.names)


Scenario = Callable[[World], Awaitable[None]]
"""Fills a world, waits until it has come to rest, and checks what only it can know."""


def simulate(scenario: Scenario, setting: Setting, trace: Callable[[float, str, str], None] | None = None) -> Result:
    """Run one simulation.

    Args:
        scenario: What happens in it.
        setting: Its seed, and what goes wrong.
        trace: Takes the timeline: the time in seconds, a line, and the text to find it by.
    """
    loop = ShuffledLoop(Random(f"{setting.seed}/loop"))
    loop.set_task_factory(task_factory)
    asyncio.set_event_loop(loop)
    server = InterceptedServer(
        loop, Random(f"{setting.seed}/server"), largest_page=Random(setting.seed).choice([3, 20, 500])
    )
    digest = hashlib.sha256()
    names: set[str] = set()
    checker = Checker(server, names)

    def note(write: Write) -> None:
        meta = write.after["metadata"]
        digest.update(f"{write.time:.6f} {write.actor} {write.type} {write.key}\n".encode())
        digest.update(orjson.dumps(write.after, option=orjson.OPT_SORT_KEYS))
        if trace is not None:
            reported = " terminating" if "deletionTimestamp" in meta else ""
            held = " held" if "finalizers" in meta else ""
            what = f"{write.type} {write.key.plural} {write.key.name}{reported}{held} v{meta['resourceVersion']}"
            trace(loop.time(), f"{write.actor:4} stored: {what}", f"{meta}")

    def fail(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        checker.fail(f"{context['message']}: {context.get('exception')!r}")

    server.observers.append(note)
    loop.set_exception_handler(fail)
    world = World(
        setting=setting,
        loop=loop,
        server=server,
        checker=checker,
        faults=Faults(loop, Random(f"{setting.seed}/faults"), setting.faults),
        tracer=(lambda line, about: trace(loop.time(), line, about)) if trace else None,
        names=names,
    )
    if setting.mixed:
        world.share_versions()
    SlowKubelet(
        loop,
        world.random("kubelet"),
        world.random("SIGTERM"),
        server,
        lambda pod: world.script(pod),  # noqa: PLW0108 - the scenario sets it later
        lambda pod: world.stops(pod),  # noqa: PLW0108 - as above
    )

    async def play() -> None:
        try:
            await scenario(world)
        finally:
            world.stop_checking()
            for operator in world.operators:
                await operator.kill()

    gc.disable()  # the garbage collector runs at different times in each process
    try:
        with seeded_ids(world.random("ids")):
            loop.run_until_complete(play())
    except (SpinningError, DeadlockError) as error:
        checker.fail(str(error))
    finally:
        loop.abandon()
        asyncio.set_event_loop(None)
        loop.close()
        gc.enable()
    return Result(
        violations=checker.violations,
        seconds=loop.time(),
        runs=checker.runs.total(),
        pods=len(checker.pods),
        writes=sum(checker.writes.values()),
        digest=digest.hexdigest()[:12],
    )
