"""Operators with faults: their connections fail, their watches lag, and they are frozen."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, TypeVar

from perdure.api.state_versions import NEWEST
from perdure.archive.rows import Archive, ArchiveSettings
from perdure.controller.capacity import CapacitySettings
from perdure.controller.dispatch.hibernation import HibernationSettings
from perdure.controller.fleet.membership import Membership
from perdure.controller.informers import Informer
from perdure.controller.manager import Manager
from perdure.controller.upgrades import UpgradeSettings
from perdure.controller.workflows.revisions import RevisionRetention
from perdure.frontend.core import Frontend
from perdure.frontend.settings import Settings
from perdure.handlers.assembly import OperatorOptions
from perdure.handlers.watch import WRITTEN
from perdure.runtime.retention import Limits
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.loop import ClusterLoop
from perdure.simulation.cluster.process import Deliver, Operator, Trace
from support.faulty.faults import Faults
from support.faulty.network import FaultySession, LaggingWatch
from support.faulty.newer import NEWER, NewerSession, as_known, release_of

_HANDLER_SECONDS = 0.02
"""Mean time until kopf calls a handler."""
_Result = TypeVar("_Result")


class FaultyOperator(Operator):
    """One process of the operator, from its start until it is killed."""

    def __init__(
        self,
        name: str,
        loop: ClusterLoop,
        random: Random,
        server: ApiServer,
        faults: Faults,
        *,
        lag: float,
        skew: float,
        limits: Limits,
        trace: Trace | None,
        crashed: Callable[[str], None],
        frontend: Settings | None = None,
        namespaces: tuple[str, ...] = (),
        fleet: str = "",
        address: str = "",
        lease_seconds: int = 10,
        reads: int = NEWEST,
        upgrades: UpgradeSettings | None = None,
        revisions: RevisionRetention | None = None,
        archive: Archive | None = None,
        archiving: ArchiveSettings | None = None,
        capacity: CapacitySettings | None = None,
        hibernation: HibernationSettings | None = None,
    ) -> None:
        """Start it.

        Args:
            name: Who writes, in traces.
            loop: Runs it.
            random: Decides what its watches do.
            server: The API server.
            faults: What goes wrong with its requests.
            lag: Mean delay of its watches, seconds.
            skew: Seconds that its clock is ahead.
            limits: What each namespace may keep of its finished runs.
            revisions: How long it keeps revisions that no run refers to.
            trace: Takes the timeline.
            crashed: Called if its work ends by itself.
            frontend: The settings of its frontend; None: it serves no Temporal SDKs.
            namespaces: What it watches; none: the whole cluster.
            fleet: With whom it shares the work; empty: with nobody.
            address: Where other members of the fleet reach it.
            lease_seconds: The duration of its Lease.
            reads: The newest state version that it reads.
            upgrades: The settings of upgrades; None: it always writes the newest version that it reads.
            archive: Archives finished runs; None without an archive.
            archiving: The settings of the archive.
            capacity: The limits of open runs and of memory; None for the defaults.
            hibernation: When runs hibernate; None for the defaults.
        """
        self.reads = reads
        self._frontend: Frontend | None = None
        self._faults = faults
        self._random = random
        self._handlers = Random(f"{random.random()} handlers")
        self._handled: dict[str, float] = {}
        """When the last event of each object that went through kopf is handled, by UID."""
        self._lag = lag
        self._lagging: list[LaggingWatch] = []

        traced = None if trace is None else _prefixed(name, trace)
        self._connections = (NewerSession if reads == NEWER else FaultySession)(loop, server, faults, name, traced)
        options = OperatorOptions(
            namespaces=namespaces,
            instance=name,
            finished=limits,
            revisions=revisions or RevisionRetention(),
            fleet=fleet,
            address=address,
            lease_seconds=lease_seconds,
            reads=reads,
            release=release_of(reads),
            upgrades=upgrades,
            archiving=archiving or ArchiveSettings(),
            capacity=capacity or CapacitySettings(),
            hibernation=hibernation or HibernationSettings(),
        )
        super().__init__(
            options,
            loop,
            server,
            self._connections,
            crashed=crashed,
            frontend=partial(self._serve, frontend) if frontend is not None else None,
            skew=skew,
            trace=traced,
            archive=archive,
        )

    def _serve(self, settings: Settings, manager: Manager) -> Frontend:
        self._frontend = Frontend(manager, settings)
        return self._frontend

    @property
    def frontend(self) -> Frontend:
        """The frontend of an operator that has one."""
        assert self._frontend is not None
        return self._frontend

    def watch(self, plural: str, label: str | None, deliver: Deliver) -> LaggingWatch:
        """A watch of one kind."""

        def deliver_known(type_: str | None, obj: dict[str, Any]) -> None:
            deliver(type_, as_known(obj))

        taker = deliver_known if self.reads == NEWER else deliver
        watch = LaggingWatch(
            self._random, self._lag, self._faults, self._loop, self._server, plural, label=label, deliver=taker
        )
        self._lagging.append(watch)
        return watch

    def process(self, informer: Informer, type_: str | None, obj: dict[str, Any]) -> None:
        """Pass an event on as `handlers.watch` does: those that need no handler immediately, others when kopf calls it."""
        if type_ in WRITTEN and self.manager.process_change(informer.plural, obj):
            return
        uid = obj["metadata"]["uid"]
        at = (
            max(self._handled.get(uid, 0.0), self._loop.time() + self._handlers.expovariate(1 / _HANDLER_SECONDS))
            + 2e-6
        )
        self._handled[uid] = at
        self._loop.call_at(at, self._handle, informer, type_, obj)

    def _handle(self, informer: Informer, type_: str | None, obj: dict[str, Any]) -> None:
        if not self.is_dead:
            super().process(informer, type_, obj)

    async def kill(self) -> None:
        """Kill the process, after a check that resyncs have repaired nothing that working watches have shown."""
        broken = {watch.plural for watch in self._lagging if watch.has_failed}
        for plural, informer in self.manager.informers.items():
            if informer.repaired and plural not in broken:
                self._crashed(
                    f"resyncs of {self.name} have repaired {informer.repaired} {plural}, whose watch never failed"
                )
        await super().kill()

    def within(self, work: Callable[..., _Result], *args: Any) -> _Result:
        """Call a function in this process, whose tasks end with it."""
        return self._context.copy().run(work, *args)

    def interrupt(self, seconds: float, plural: str = "") -> None:
        """Break the connections of its watches: those of a kind; else of all, or of one that the seed chooses."""
        if plural:
            chosen = [each for each in self._lagging if each.plural == plural]
        else:
            chosen = self._lagging if self._random.random() < 0.5 else [self._random.choice(self._lagging)]
        for each in chosen:
            each.interrupt(seconds)

    @property
    def shards(self) -> frozenset[int]:
        """The shards of a fleet for which it may decide now."""
        membership = self.manager.shards
        assert isinstance(membership, Membership)
        return membership.shards

    @property
    def is_dead(self) -> bool:
        """Whether it was killed."""
        return self._connections.dead

    @property
    def is_frozen(self) -> bool:
        """Whether it is suspended."""
        return self._connections.is_frozen

    def freeze(self, seconds: float) -> None:
        """Freeze it: it receives no responses and no events for a while."""
        self._connections.freeze(seconds)
        for each in self._lagging:
            each.interrupt(seconds)


def _prefixed(name: str, trace: Trace) -> Trace:
    return lambda line, about: trace(f"{name:4} {line}", about)
