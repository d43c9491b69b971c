"""The manager: connect the informers, queues, and reconcilers of an operator.

    a watch, a list ─▶ informers: update the index, wake the affected objects ─▶ queue of keys ─▶ reconciliation of one object

The resync finds changes that a watch has missed.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import assert_never

from perdure.controller.artifacts.deletion import ArtifactCollector, DeletionPods
from perdure.controller.directory import Directory
from perdure.controller.expired_objects import CACHED_RESULTS, KEPT_PODS, delete_for_ever
from perdure.controller.fleet.shards import Shards
from perdure.controller.informers import periodic
from perdure.controller.informers.clock_jumps import ClockJumps
from perdure.controller.informers.first_lists import FirstLists
from perdure.controller.informers.index import Index
from perdure.controller.informers.isolation import take_in
from perdure.controller.informers.referenced_objects import ReferencedObjects
from perdure.controller.informers.resync import Resync
from perdure.controller.informers.run_expiries import RunExpiries
from perdure.controller.informers.run_pods import RunPods
from perdure.controller.informers.schedules import Schedules
from perdure.controller.informers.workflowruns import WorkflowRuns
from perdure.controller.limits.releases import LimitReleases
from perdure.controller.namespace_checks import check_for_ever
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.pods.workspaces import ReleasedClaims
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
    WebhookKey,
    WorkflowKey,
)
from perdure.controller.retention.finished_runs import FinishedRuns
from perdure.controller.retention.namespace_retention import NamespaceRetention
from perdure.controller.tools import Tools
from perdure.controller.webhooks.webhooks import Webhooks
from perdure.controller.workers import NoWorkers, Workers
from perdure.controller.workflows.readiness import Readiness
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.runtime import status_texts
from perdure.runtime.attempts import RunRef
from perdure.runtime.retention import Limits


class Manager:
    """Assembles the informers and reconcilers of an operator, and runs them."""

    def __init__(
        self,
        tools: Tools,
        served: ServedNamespaces,
        *,
        workers: int = 32,
        kept: Limits | None = None,
        frontend: Callable[["Manager"], Workers] = lambda _: NoWorkers(),
    ) -> None:
        """Create a manager without starting it.

        Args:
            tools: The shared services.
            served: The served namespaces.
            workers: How many objects are processed concurrently.
            kept: The limits of finished runs per namespace; None for the defaults.
            frontend: Creates the server for workers, which keeps the manager, and uses it once it is complete.
        """
        self.served = served
        self.tools = tools
        self.tools = tools = replace(tools, workers=frontend(self))
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
        self._releases = LimitReleases(tools.client, tools.limits, tools.shards, self.directory, self._queue.wake)
        self.runs = WorkflowRuns(
            tools,
            self._index,
            self._queue,
            self._expiries,
            releases=self._releases,
            changed=self._observe_retention,
        )
        self.schedules = Schedules(tools, self._index, self._queue, self.runs)
        self._pods = RunPods(tools, self._index, self._queue, self.runs)
        self._readiness = Readiness(tools.client, tools.definitions, tools.pods, tools.policies, tools.recorder)
        self.referenced = ReferencedObjects(
            tools, self._queue, self._readiness, runs=self.runs, schedules=self.schedules
        )
        self.webhooks = Webhooks(tools.client, tools.recorder, self._queue.wake, self.runs.made)
        self._finished = FinishedRuns(tools.client, self._index, self.runs, self.schedules, self._expiries)
        self._claims = ReleasedClaims(tools.client, self._index.directory, tools.pods.settings.pod_ttl)
        deletions = DeletionPods(tools.client, tools.recorder, tools.pods.settings)
        self._artifacts = ArtifactCollector(tools.client, self._index.directory, deletions)
        self._retention = NamespaceRetention(
            tools.client,
            tools.recorder,
            self._index,
            kept or Limits(),
            is_over=self._finished.is_over,
            holds=tools.shards.holds,
        )
        self.first_lists = FirstLists(
            tools.client,
            served,
            {
                "workflowruns": self.runs.take,
                "retrypolicies": self.referenced.take_policy,
                "workflowlimits": self.referenced.take_limit,
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
            few={
                "retrypolicies": self.referenced.take_policy,
                "workflowlimits": self.referenced.take_limit,
                "webhooks": self.on_webhook,
            },
        )
        self._clock_jumps = ClockJumps()
        tools.limits.wake = self._wake_run
        tools.letters.suspect = self.runs.suspect
        tools.shards.subscribe(self._reassign)

    @property
    def shards(self) -> Shards:
        """The shards of this process."""
        return self.tools.shards

    @property
    def directory(self) -> Directory:
        """The directory of all runs."""
        return self._index.directory

    @property
    def client(self) -> kube.Client:
        """The client of the API server."""
        return self.tools.client

    # Watch events

    def on_run(self, obj: kube.Object, *, deleted: bool) -> None:
        """Process a watch event of a WorkflowRun."""
        self._resync.observe_event("workflowruns")
        self.runs.take(status_texts.decode(obj), deleted=deleted)

    def on_pod(self, obj: kube.Object, *, deleted: bool) -> None:
        """Process a watch event of a pod of a run."""
        self._resync.observe_event("pods")
        self._pods.take(obj, deleted=deleted)
        self._releases.observe_pod(obj)

    def on_schedule(self, obj: kube.Object, *, deleted: bool) -> None:
        """Process a watch event of a Schedule."""
        self._resync.observe_event("schedules")
        self.schedules.take(obj, deleted=deleted)

    def on_webhook(self, obj: kube.Object, *, deleted: bool = False) -> None:
        """Process a watch event of a Webhook."""
        self.webhooks.observe(obj, deleted=deleted)
        key = WebhookKey(obj["metadata"]["namespace"], obj["metadata"]["name"])
        self._queue.forget(key) if deleted else self._queue.wake(key)

    def _wake_run(self, run: RunRef) -> None:
        self._queue.wake(RunKey(run.namespace, run.uid, run.workflow_id))

    def _observe_retention(self, namespace: str) -> None:
        due = self._retention.observe(namespace)
        if due is not None:
            self._queue.wake_at(RetentionKey(namespace), due)

    # Work

    async def run(self) -> None:
        """Work until cancelled."""
        self._clock_jumps.begin()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.tools.shards.run())
            group.create_task(self._learn())
            self._queue.start(group)
            group.create_task(self.tools.recorder.run())
            group.create_task(periodic.repeat(self._poll))
            for kind in (KEPT_PODS, CACHED_RESULTS):
                group.create_task(delete_for_ever(self.tools.client, kind, self.served, self.tools.shards))
            group.create_task(check_for_ever(self._claims.release, self.served, self.tools.shards, "released-claims"))
            group.create_task(self._artifacts.collect_for_ever(self.served, self.tools.shards))
            group.create_task(self.tools.blobs.remove_unclaimed_for_ever(self.served, self.tools.shards))

    async def _learn(self) -> None:
        await self.tools.shards.assigned()  # only the runs of its own shards are kept
        await self.first_lists.read()
        self.tools.shards.prepared()

    # A fleet

    def _admits(self, key: Key) -> bool:
        """Whether this process may process a key: it owns the shard, or works on a run as a guest."""
        shards = self.tools.shards
        guest = isinstance(key, RunKey) and self.runs.fleet.is_guest(key.uid)
        return shards.active if guest else shards.owns(key.namespace, key.sharded_by)

    def _remembers(self, key: Key) -> bool:
        """Whether to keep a key that others process: not if its object is read or woken when this process gains it."""
        match key:
            case RunKey():
                return self.runs.get(key.uid) is not None
            case ScheduleKey() | OrphanKey():
                return self.tools.shards.holds(key.namespace, key.sharded_by)
            case _:
                return True

    def _reassign(self) -> None:
        """Apply a change of the shards of this process, or of its right to decide."""
        self.runs.fleet.reassign()
        self.schedules.reassign()
        self._pods.reassign()
        self._queue.readmit()

    async def drain(self) -> None:
        """Wait until no work is in progress."""
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
            case _:
                await self._update_status(key)

    async def _update_status(self, key: WorkflowKey | PolicyKey | LimitKey | WebhookKey | LetterKey) -> None:
        """Reconcile an object of which only the status changes."""
        match key:
            case WorkflowKey():
                self._queue.wake_at(key, await self._readiness.reconcile(key.namespace, key.name, now()))
            case PolicyKey():
                await self.tools.policies.reconcile(key.namespace, key.name)
            case LimitKey():
                self._queue.wake_at(key, await self._releases.reconcile(key.namespace, key.name, now()))
            case WebhookKey():
                self._queue.wake_at(key, await self.webhooks.reconcile(key.namespace, key.name, now()))
            case LetterKey():
                await self.tools.letters.reconcile(key.namespace, key.name)
            case _:
                assert_never(key)

    async def _poll(self) -> bool:
        """Execute the periodic work, and return whether it is complete."""
        if self._clock_jumps.jumped():
            self.schedules.observe_clock()
        self._expiries.arm(now())
        return await self.resync()

    async def resync(self) -> bool:
        """Find changes that no watch has shown, and return whether everything could be compared."""
        return await self._resync.resync()

    def trouble(self) -> str | None:
        """The problem with the watches; None if there is none."""
        return self._resync.trouble()

    # The first lists, for the watches that continue them

    async def listed(self, plural: str, namespace: str | None) -> str:
        """Return the version of the first list of a kind once; afterwards, and for other kinds, return an empty string."""
        return await self.first_lists.version(plural, namespace)

    def takes(self, plural: str, obj: kube.Object) -> bool:
        """Take a finished run from a list; other objects are passed to the handlers."""
        return plural == "workflowruns" and self.runs.take_finished(obj)

    def knows(self, plural: str, obj: kube.Object) -> bool:
        """Take a change of a run that needs no handler; return whether it was taken.

        Either this process wrote or read exactly this version, or another member of the fleet works on the run.
        """
        others = self.runs.fleet.others
        if plural != "workflowruns" or not (self.directory.knows(obj) or obj["metadata"]["uid"] in others):
            return False
        take_in(obj, partial(self.on_run, deleted=False))
        return True
