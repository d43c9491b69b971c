"""Everything that this operator works on: watch events go in here, and come out as passes over single objects.

    a watch, a list ─▶ taken in: the index knows it, whom it concerns is woken ─▶ queue of keys ─▶ a pass over one object

What a watch misses, the resync finds.
"""

import asyncio
from typing import Final, assert_never

import structlog

from perdure.controller.directory import Directory
from perdure.controller.fleet.shards import Shards
from perdure.controller.informers import periodic
from perdure.controller.informers.first_lists import FirstLists
from perdure.controller.informers.index import Index
from perdure.controller.informers.resync import Resync
from perdure.controller.informers.run_expiries import RunExpiries
from perdure.controller.informers.run_pods import RunPods
from perdure.controller.informers.schedules import Schedules
from perdure.controller.informers.workflowruns import WorkflowRuns
from perdure.controller.limits.limit_releases import LimitReleases
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.payloads.payload_store import Blobs
from perdure.controller.pods import expired_pods as kept
from perdure.controller.pods.released_claims import ReleasedClaims
from perdure.controller.queue.fairness import share
from perdure.controller.queue.keyed_queue import KeyedQueue
from perdure.controller.queue.keys import (
    ExpiryKey,
    Key,
    LetterKey,
    LimitKey,
    OrphanKey,
    PolicyKey,
    RetentionKey,
    RunKey,
    ScheduleKey,
    WorkflowKey,
)
from perdure.controller.retention.finished_runs import FinishedRuns
from perdure.controller.retention.namespace_retention import NamespaceRetention
from perdure.controller.tools import Tools
from perdure.controller.workflows.definitions import Definitions
from perdure.controller.workflows.readiness import Readiness
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.kube.events import Recorder
from perdure.runtime.attempts import RunRef
from perdure.runtime.retention import Limits

_CLOCK_JUMP_SECONDS: Final = 1.0


class Manager:
    """Puts together what knows and works on the objects of an operator, and runs it."""

    def __init__(
        self,
        tools: Tools,
        served: ServedNamespaces,
        *,
        workers: int = 32,
        kept: Limits | None = None,
    ) -> None:
        """Nothing runs yet.

        Args:
            tools: What everything works with.
            served: Where.
            workers: How many objects are worked on at a time.
            kept: What each namespace may keep of its finished runs; None for the default limits.
        """
        self.served = served
        self._tools = tools
        self._queue: KeyedQueue[Key] = KeyedQueue(
            self._work,
            clock=now,
            workers=workers,
            tenant=lambda key: key.namespace,
            each=share(workers),
            name="runs",
            admits=self._admits,
            remembers=self._remembers,
        )
        self._index = Index()
        self._expiries = RunExpiries(self._index.directory, self._queue, periodic.RESYNC_SECONDS)
        self._releases = LimitReleases(tools.client, tools.limits, self._index.directory, self._queue.wake)
        self.runs = WorkflowRuns(
            tools,
            self._index,
            self._queue,
            self._expiries,
            changed=self._observe_retention,
            ended=self._releases.observe_end,
        )
        self.schedules = Schedules(tools, self._index, self._queue, self.runs)
        self._pods = RunPods(tools, self._index, self._queue, self.runs)
        self._readiness = Readiness(tools.client, tools.definitions, tools.pods, tools.policies, tools.recorder)
        self._finished = FinishedRuns(tools.client, self._index, self.runs, self.schedules, self._expiries)
        self._claims = ReleasedClaims(tools.client, self._index.directory, tools.pods.settings.pod_ttl)
        self._retention = NamespaceRetention(
            tools.client,
            tools.recorder,
            self._index,
            kept or Limits(),
            is_over=self._finished.is_over,
            holds=tools.shards.holds,
        )
        # The closed runs of Schedules are theirs to remove.
        self.first_lists = FirstLists(
            tools.client,
            served,
            {
                "workflowruns": self.runs.take,
                "retrypolicies": self.on_policy,
                "workflowlimits": self.on_limit,
                "schedules": self.schedules.take,
            },
        )
        self._resync = Resync(
            tools.client,
            served,
            self._index,
            self._queue,
            runs=self.runs,
            schedules=self.schedules,
            pods=self._pods,
            few={"retrypolicies": self.on_policy, "workflowlimits": self.on_limit},
        )
        self._ahead = 0.0
        """Seconds that the wall clock was ahead of one that is never set, when it was last compared."""
        self._log = structlog.get_logger("perdure.manager")
        tools.policies.changed = self._policies_changed
        tools.limits.wake = self._wake_run
        tools.letters.suspect = self.runs.suspect
        tools.shards.subscribe(self._reassign)

    @property
    def shards(self) -> Shards:
        """What this process owns."""
        return self._tools.shards

    @property
    def directory(self) -> Directory:
        """All runs that there are."""
        return self._index.directory

    @property
    def client(self) -> kube.Client:
        """Speaks to the API server."""
        return self._tools.client

    @property
    def recorder(self) -> Recorder:
        """Records Events."""
        return self._tools.recorder

    @property
    def blobs(self) -> Blobs:
        """Stores and reads large payloads."""
        return self._tools.blobs

    @property
    def definitions(self) -> Definitions:
        """Finds and compiles definitions."""
        return self._tools.definitions

    # Watch events

    def on_run(self, obj: kube.Object, *, deleted: bool) -> None:
        """A watch tells: a WorkflowRun was seen, changed or deleted."""
        self._resync.observe_event("workflowruns")
        self.runs.take(obj, deleted=deleted)

    def on_pod(self, obj: kube.Object, *, deleted: bool) -> None:
        """A watch tells: a pod of some run was seen, changed or deleted."""
        self._resync.observe_event("pods")
        self._pods.take(obj, deleted=deleted)
        self._releases.observe_pod(obj)

    def on_schedule(self, obj: kube.Object, *, deleted: bool) -> None:
        """A watch tells: a Schedule was seen, changed or deleted."""
        self._resync.observe_event("schedules")
        self.schedules.take(obj, deleted=deleted)

    def on_workflow(self, obj: kube.Object, *, deleted: bool) -> None:
        """A watch tells: a Workflow was seen, changed or deleted. Runs wait for it; Schedules report what is wrong with it."""
        key = WorkflowKey(obj["metadata"]["namespace"], obj["metadata"]["name"])
        changed = self._readiness.observe(obj, deleted=deleted)
        if changed:
            self.schedules.observe_workflow(key.namespace, key.name)
        if deleted:
            self._queue.forget(key)
            return
        if changed:
            self._queue.wake(key)
        self.runs.observe_workflow(key.namespace, key.name)

    def on_policy(self, obj: kube.Object, *, deleted: bool = False) -> None:
        """A watch tells: a RetryPolicy was seen, changed or deleted."""
        self._tools.policies.observe(obj, deleted=deleted)
        key = PolicyKey(obj["metadata"]["namespace"], obj["metadata"]["name"])
        self._queue.forget(key) if deleted else self._queue.wake(key)

    def on_limit(self, obj: kube.Object, *, deleted: bool = False) -> None:
        """A watch tells: a WorkflowLimit was seen, changed or deleted."""
        self._tools.limits.observe(obj, deleted=deleted)
        key = LimitKey(obj["metadata"]["namespace"], obj["metadata"]["name"])
        self._queue.forget(key) if deleted else self._queue.wake(key)

    def _wake_run(self, run: RunRef) -> None:
        self._queue.wake(RunKey(run.namespace, run.uid, run.workflow_id))

    def _policies_changed(self, namespace: str) -> None:
        for name in self._readiness.stale(namespace):
            self._queue.wake(WorkflowKey(namespace, name))
        self.runs.observe_policies(namespace)
        self.schedules.observe_policies(namespace)

    def _observe_retention(self, namespace: str) -> None:
        due = self._retention.observe(namespace)
        if due is not None:
            self._queue.wake_at(RetentionKey(namespace), due)

    # Work

    async def run(self) -> None:
        """Work until cancelled."""
        self._ahead = _ahead()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._tools.shards.run())
            group.create_task(self._learn())
            self._queue.start(group)
            group.create_task(self._tools.recorder.run())
            group.create_task(periodic.repeat(self._poll))
            group.create_task(kept.delete_for_ever(self._tools.client, self.served, self._tools.shards))
            group.create_task(self._claims.release_for_ever(self.served, self._tools.shards))
            group.create_task(self._tools.blobs.remove_unclaimed_for_ever(self.served, self._tools.shards))

    async def _learn(self) -> None:
        await self._tools.shards.joined()  # only the runs of its own shards are kept
        await self.first_lists.read()

    # A fleet

    def _admits(self, key: Key) -> bool:
        """Whether a key is this process's to process: it owns the shard, or works on a run as a guest."""
        shards = self._tools.shards
        guest = isinstance(key, RunKey) and self.runs.fleet.is_guest(key.uid)
        return shards.active if guest else shards.owns(key.namespace, key.sharded_by)

    def _remembers(self, key: Key) -> bool:
        """Whether a key that others process is kept: all but those of objects that are read, or woken, when they are gained."""
        match key:
            case RunKey():
                return self.runs.get(key.uid) is not None
            case ScheduleKey() | OrphanKey():
                return self._tools.shards.holds(key.namespace, key.sharded_by)
            case _:
                return True

    def _reassign(self) -> None:
        """The fleet has given this process other shards, or its right to decide has ended or begun."""
        self.runs.fleet.reassign()
        self.schedules.reassign()
        self._pods.reassign()
        self._queue.readmit()

    async def drain(self) -> None:
        """Wait until nothing is in progress."""
        await self._queue.drain()

    async def _work(self, key: Key) -> None:
        await self.first_lists.wait()
        match key:
            case RunKey():
                await self.runs.advance(key)
            case ScheduleKey():
                await self.schedules.advance(key)
            case OrphanKey():
                await self._pods.release(key)
            case ExpiryKey():
                await self._finished.remove(key)
            case RetentionKey():
                self._queue.wake_at(key, await self._retention.enforce(key.namespace))
            case WorkflowKey():
                self._queue.wake_at(key, await self._readiness.tell(key.namespace, key.name, now()))
            case PolicyKey():
                await self._tools.policies.reconcile(key.namespace, key.name)
            case LimitKey():
                self._queue.wake_at(key, await self._releases.reconcile(key.namespace, key.name, now()))
            case LetterKey():
                await self._tools.letters.reconcile(key.namespace, key.name)
            case _:
                assert_never(key)

    async def _poll(self) -> bool:
        """Do what no event triggers; whether it is complete."""
        ahead, before = _ahead(), self._ahead
        self._ahead = ahead
        if abs(ahead - before) > _CLOCK_JUMP_SECONDS:
            self._log.warning("The clock has jumped", seconds=round(ahead - before, 3))
            self.schedules.observe_clock()
        self._expiries.arm(now())
        return await self.resync()

    async def resync(self) -> bool:
        """Find what no watch has shown; whether everything could be compared."""
        return await self._resync.resync()

    def trouble(self) -> str | None:
        """What is wrong with the watches; None when all is well."""
        return self._resync.trouble()

    # The first lists, for the watches that continue them

    async def listed(self, plural: str, namespace: str | None) -> str:
        """The version of the first list of a kind, once; afterwards, and for other kinds, empty: a watch lists it itself."""
        return await self.first_lists.version(plural, namespace)

    def takes(self, plural: str, obj: kube.Object) -> bool:
        """Take a finished run that a watch has listed; everything else of a list goes through the handlers."""
        return plural == "workflowruns" and self.runs.take_finished(obj)


def _ahead() -> float:
    """Seconds that the wall clock is ahead of one that is never set."""
    return now().timestamp() - asyncio.get_running_loop().time()
