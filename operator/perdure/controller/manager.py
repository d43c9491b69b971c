"""The manager: connect the informers, the queue of keys, and the reconcilers of an operator.

    a watch, a list ─▶ informers ─▶ dispatch: update the index, wake the affected objects ─▶ queue of keys ─▶ reconciliation

The resync finds changes that a watch has missed.
"""

import asyncio
from functools import partial
from typing import assert_never

from perdure.api.labels import RUN_ID_LABEL
from perdure.archive.rows import Archive, ArchiveSettings
from perdure.controller.archiver import Archiver
from perdure.controller.artifacts import ArtifactCollector, DeletionPods
from perdure.controller.capacity import CapacitySettings
from perdure.controller.dispatch.hibernation import HibernationSettings
from perdure.controller.dispatch.index import Index
from perdure.controller.dispatch.pods import RunPods
from perdure.controller.dispatch.references import ReferencedObjects
from perdure.controller.dispatch.runs import WorkflowRuns
from perdure.controller.dispatch.schedules import Schedules
from perdure.controller.errors import isolate
from perdure.controller.expiry import CACHED_RESULTS, KEPT_PODS, RetentionPolicies, RunExpiries, delete_forever
from perdure.controller.informers import RESYNC_SECONDS, ClockJumps, FirstLists, Informer, Resync, repeat
from perdure.controller.limit_releases import LimitReleases
from perdure.controller.namespaces import ServedNamespaces, check_forever
from perdure.controller.pods.workspaces import ReleasedClaims
from perdure.controller.queue import (
    DeadLetterKey,
    DefaultsKey,
    ExpiryKey,
    Key,
    KeyedQueue,
    LimitKey,
    OrphanKey,
    PolicyKey,
    RetentionKey,
    RunKey,
    ScheduleKey,
    WebhookKey,
    WorkersKey,
    WorkflowKey,
    share,
)
from perdure.controller.retention import FinishedRuns, NamespaceRetention
from perdure.controller.services import Services
from perdure.controller.state_versions import state_versions
from perdure.controller.upgrades import Upgrades, UpgradeSettings
from perdure.controller.webhooks import Webhooks
from perdure.controller.worker_deployments import WorkerDeployments
from perdure.controller.workers import Workers
from perdure.controller.workflows.namespace_defaults import DefaultsReadiness
from perdure.controller.workflows.readiness import Readiness
from perdure.controller.workflows.revisions import RevisionCollector, RevisionRetention
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.observe import metrics
from perdure.runtime import status_encoding
from perdure.runtime.attempts import RunRef
from perdure.runtime.retention import Limits


class Manager:
    """Assembles the informers and reconcilers of an operator, and runs them."""

    def __init__(
        self,
        services: Services,
        served: ServedNamespaces,
        *,
        workers: int = 32,
        finished: Limits | None = None,
        upgrades: UpgradeSettings | None = None,
        revisions: RevisionRetention | None = None,
        archive: Archive | None = None,
        archiving: ArchiveSettings | None = None,
        pod: kube.Object | None = None,
        hibernation: HibernationSettings | None = None,
        capacity: CapacitySettings | None = None,
    ) -> None:
        """Create a manager without starting it.

        Args:
            services: The shared services.
            served: The served namespaces.
            workers: How many objects are processed concurrently.
            finished: The limits of finished runs per namespace; None for the defaults.
            revisions: How long revisions are kept that no run refers to; None for the defaults.
            upgrades: The settings of upgrades; None: the operator writes the same state version all the time, as in simulations.
            archive: Archives finished runs; None without an archive.
            archiving: The settings of the archive; None for the defaults.
            pod: The pod of this process; None: it is in no pod.
            hibernation: When runs that only wait are dropped from memory; None for the defaults.
            capacity: The limits of open runs and of memory; None for the defaults.
        """
        self.served = served
        self.client = services.client
        """The client of the API server."""
        self.shards = services.shards
        """The shards of this process."""
        self.services = services
        """The shared services."""
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
        self.drain = self._queue.drain
        """Wait until no work is in progress; see there."""
        index = Index()
        self.directory = index.directory
        """The directory of all runs."""

        self.archive = archive
        """Has the finished runs; None without an archive."""
        self.archiver = None
        """Archives finished runs; None without an archive."""
        if archive is not None:
            self.archiver = Archiver(
                archive,
                archiving or ArchiveSettings(),
                client=services.client,
                blobs=services.blobs,
                directory=index.directory,
                shards=services.shards,
                recorder=services.recorder,
                operator=pod,
            )

        # The objects that this process works on
        self.policies = RetentionPolicies(services.client)
        """How long namespaces keep their finished runs."""
        self._expiries = RunExpiries(index.directory, self._queue, RESYNC_SECONDS, self.policies)
        self._releases = LimitReleases(
            services.client, services.limits, services.shards, index.directory, self._queue.wake
        )
        self.runs = WorkflowRuns(
            services,
            index,
            self._queue,
            self._expiries,
            releases=self._releases,
            changed=self._update_retention,
            archiver=self.archiver,
            hibernation=hibernation,
            capacity=capacity,
        )
        self.schedules = Schedules(services, index, self._queue, self.runs)
        self._pods = RunPods(services, index, self._queue, self.runs, self._releases)
        self._readiness = Readiness(
            services.client, services.definitions, services.pods, services.policies, services.recorder
        )
        self._defaults = DefaultsReadiness(
            services.client, services.definitions, services.pods, services.policies, services.recorder
        )
        references = ReferencedObjects(
            services,
            self._queue,
            self._readiness,
            self._defaults,
            runs=self.runs,
            schedules=self.schedules,
            retention_changed=self._update_policy,
        )
        self.webhooks = Webhooks(services.client, services.recorder, self._queue, self.runs.add_created)
        self.worker_deployments = WorkerDeployments(
            services.client,
            services.recorder,
            services.shards,
            self._queue,
            services.pods.settings,
            services.definitions.versions,
        )

        # The removal of objects
        self._finished = FinishedRuns(services.client, index, self.runs, self.schedules, self._expiries, self.policies)
        self._retention = NamespaceRetention(
            services.client,
            services.recorder,
            index,
            finished or Limits(),
            policies=self.policies,
            is_over=self._finished.is_over,
            holds=services.shards.holds,
            archiver=self.archiver,
        )
        self._claims = ReleasedClaims(services.client, index.directory, services.pods.settings.pod_ttl)
        deletions = DeletionPods(services.client, services.recorder, services.pods.settings)
        self._artifacts = ArtifactCollector(services.client, index.directory, deletions)

        self._revisions = RevisionCollector(
            services.client,
            services.definitions.revisions,
            services.definitions,
            revisions or RevisionRetention(),
            services.definitions.versions.uses,
        )

        self._upgrades = None
        if upgrades is not None:
            versions = state_versions()
            self._upgrades = Upgrades(services.client, services.shards, services.recorder, served, versions, upgrades)

        # How this process learns which objects exist
        self.informers = {
            each.plural: each
            for each in (
                Informer("workflowruns", self._update_run, self._delete_run),
                Informer("workflows", references.update_workflow, references.delete_workflow),
                Informer("retrypolicies", references.update_policy, references.delete_policy),
                Informer("workflowlimits", references.update_limit, references.delete_limit),
                Informer("workflowdefaults", references.update_defaults, references.delete_defaults),
                Informer("webhooks", self.webhooks.update, self.webhooks.delete),
                Informer("workerdeployments", self.worker_deployments.update, self.worker_deployments.delete),
                Informer("schedules", self.schedules.update, self.schedules.delete),
                Informer("pods", self._pods.update, self._pods.delete, group="", version="v1", label=RUN_ID_LABEL),
            )
        }
        """The informers of all kinds except Operations, by plural."""
        self.first_lists = FirstLists(
            services.client,
            served,
            {
                "workflowdefaults": references.update_defaults,  # how long the runs that follow are kept
                "workflowruns": self.runs.update_listed,
                "retrypolicies": references.update_policy,
                "workflowlimits": references.update_limit,
                "schedules": self.schedules.update,
            },
        )
        self.list_version = self.first_lists.version
        """Return the version of a first list, from which a watch continues; see there."""
        self._resync = Resync(
            services.client,
            served,
            index,
            self._queue,
            self.informers,
            runs=self.runs,
            schedules=self.schedules,
            pods=self._pods,
        )
        self.resync = self._resync.resync
        """Find changes that no watch has shown, and return whether everything could be compared; see there."""
        self._clock_jumps = ClockJumps()

        services.limits.wake = self._wake_run
        services.letters.suspect = self.runs.suspect
        services.shards.subscribe(self._reassign)

    def attach(self, workers: Workers) -> None:
        """Let a server for workers follow the runs. It is created with this manager, and attached before the manager runs."""
        self.services.workers = workers

    def measure(self) -> None:
        """Set the metrics of the open runs that this process owns."""
        metrics.show_open_runs(*self.runs.count_open())

    def trouble(self) -> str | None:
        """The problem with the watches; None if there is none."""
        return next((problem for each in self.informers.values() if (problem := each.trouble())), None)

    def _update_run(self, obj: kube.Object) -> None:
        self.runs.update(status_encoding.decode(obj))

    def _delete_run(self, obj: kube.Object) -> None:
        self.runs.delete(status_encoding.decode(obj))

    def _wake_run(self, run: RunRef) -> None:
        self._queue.wake(RunKey(run.namespace, run.uid, run.workflow_id))

    def _update_retention(self, namespace: str) -> None:
        for due, when in self._retention.update(namespace).items():
            self._queue.wake_at(RetentionKey(due), when)

    def _update_policy(self, namespace: str, defaults: kube.Object) -> None:
        if self.policies.put(namespace, defaults):
            self._expiries.outdate(namespace)
            self._update_retention(namespace)

    # Work

    async def run(self) -> None:
        """Work until cancelled."""
        self._clock_jumps.begin()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.shards.run())
            if self._upgrades is not None:
                group.create_task(self._upgrades.run())
            group.create_task(self._read_first_lists())
            if self.archiver is not None:
                group.create_task(self._archive(self.archiver))
            self._queue.start(group)
            group.create_task(self.services.recorder.run())
            group.create_task(repeat(self._poll))
            for kind in (KEPT_PODS, CACHED_RESULTS):
                group.create_task(delete_forever(self.client, kind, self.served, self.shards))
            group.create_task(check_forever(self._claims.release, self.served, self.shards, "released-claims"))
            group.create_task(self._artifacts.collect_forever(self.served, self.shards))
            group.create_task(self._revisions.collect_forever(self.served, self.shards))
            group.create_task(self.services.blobs.remove_unclaimed_forever(self.served, self.shards))

    async def _read_first_lists(self) -> None:
        await self.shards.assigned()  # only the runs of its own shards are kept
        await self.first_lists.read()
        self.shards.prepared()

    async def _archive(self, archiver: Archiver) -> None:
        await self.first_lists.wait()
        await archiver.run()

    async def _poll(self) -> bool:
        """Execute the periodic work, and return whether it is complete."""
        if self._clock_jumps.jumped():
            self.schedules.recompute()
        self._expiries.arm(now())
        return await self.resync()

    async def _work(self, key: Key) -> None:
        """Process a key of the queue."""
        await self.first_lists.wait()
        match key:
            case RunKey():
                await self.runs.advance(key)
            case ScheduleKey():
                await self.schedules.advance(key)
            case OrphanKey():
                self._queue.wake_at(key, await self._pods.release(key))
            case ExpiryKey():
                await self._finished.remove(key)
            case RetentionKey():
                self._queue.wake_at(key, await self._retention.enforce(key.namespace))
            case _:
                await self._update_status(key)

    async def _update_status(
        self, key: WorkflowKey | PolicyKey | LimitKey | DefaultsKey | WebhookKey | WorkersKey | DeadLetterKey
    ) -> None:
        """Reconcile an object without a state of its own: its status follows from what exists."""
        match key:
            case WorkflowKey():
                self._queue.wake_at(key, await self._readiness.reconcile(key.namespace, key.name, now()))
            case PolicyKey():
                await self.services.policies.reconcile(key.namespace, key.name)
            case LimitKey():
                self._queue.wake_at(key, await self._releases.reconcile(key.namespace, key.name, now()))
            case DefaultsKey():
                self._queue.wake_at(key, await self._defaults.reconcile(key.namespace, key.name, now()))
            case WebhookKey():
                self._queue.wake_at(key, await self.webhooks.reconcile(key.namespace, key.name, now()))
            case WorkersKey():
                self._queue.wake_at(key, await self.worker_deployments.reconcile(key.namespace, key.name, now()))
            case DeadLetterKey():
                await self.services.letters.reconcile(key.namespace, key.name)
            case _:
                assert_never(key)

    # A fleet

    def _admits(self, key: Key) -> bool:
        """Whether this process may process a key: it owns the shard, or works on a run as a guest."""
        guest = isinstance(key, RunKey) and self.runs.fleet.is_guest(key.uid)
        return self.shards.active if guest else self.shards.owns(key.namespace, key.sharded_by)

    def _remembers(self, key: Key) -> bool:
        """Whether to keep a key that others process: not if its object is read or woken when this process gains it."""
        match key:
            case RunKey():
                return self.runs.get(key.uid) is not None or key.uid in self.runs.hibernation
            case ScheduleKey() | OrphanKey():
                return self.shards.holds(key.namespace, key.sharded_by)
            case _:
                return True

    def _reassign(self) -> None:
        """Apply a change of the shards of this process, or of its right to decide."""
        self.runs.fleet.reassign()
        self.schedules.reassign()
        self._pods.reassign()
        self._queue.readmit()
        if self.archiver is not None:
            self.archiver.reassign()

    # For the watches that continue the first lists

    def process_listed(self, plural: str, obj: kube.Object) -> bool:
        """Process a finished run of a list; other objects are passed to the handlers."""
        return plural == "workflowruns" and self.runs.update_finished(obj)

    def process_change(self, plural: str, obj: kube.Object) -> bool:
        """Process a change of a run that needs no handler; return whether it was processed.

        Either this process wrote or read exactly this version, or another member of the fleet works on the run.
        """
        others = self.runs.fleet.others
        if plural != "workflowruns" or not (self.directory.knows(obj) or obj["metadata"]["uid"] in others):
            return False
        isolate(obj, partial(self.informers[plural].on_event, deleted=False))
        return True
