"""All runs of this operator: watch events go in here, and come out as passes over single runs.

A watch may miss something: kopf keeps no record of what was deleted during a gap, and a connection can hang. So a sweep lists
what there is, once in a while, and hands on what no event has told of. That is also what the liveness probe goes by.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

import structlog

from perdure.api import labels
from perdure.api.reasons import ConditionReason
from perdure.controller import kept
from perdure.controller import pods as attempts
from perdure.controller.definitions import Definitions
from perdure.controller.directory import Directory, Entry, Standing
from perdure.controller.expiry import Expiries, expiry, has_chores, remove_expired
from perdure.controller.fairness import share
from perdure.controller.queue import KeyedQueue
from perdure.controller.readiness import Readiness
from perdure.controller.recorded import Recorded
from perdure.controller.retention import Retention
from perdure.controller.run import Run, Tools
from perdure.controller.schedule import Schedule
from perdure.engine import inputs
from perdure.engine.inputs import Answer
from perdure.engine.starts import ParentClosePolicy
from perdure.kube import client as api
from perdure.kube.clock import now
from perdure.kube.decoding import Stored
from perdure.observe import metrics
from perdure.runtime.chains import is_open
from perdure.runtime.commits import OF_RUNS, edited
from perdure.runtime.deadletters import letter_of, runs_again
from perdure.runtime.retention import Limits
from perdure.schedule.inputs import Answer as ScheduleAnswer
from perdure.schedule.inputs import Request as ScheduleRequest

Key = tuple[str, ...]
"""``("run", uid)``; ``("workflow", namespace, name)``; ``("schedule", uid)``;
``("pod", namespace, name, uid)`` for a pod whose run is not known; ``("expiry", namespace, name, uid)``
for a closed run that is removed when its time is over; ``("policy", namespace, name)`` for a RetryPolicy;
``("letter", namespace, name)`` for a DeadLetter; ``("retention", namespace)`` for a namespace with too many finished runs."""

SWEEP_SECONDS = 60.0
_DEAD_AFTER_SWEEPS = 3
_ASK_AGAIN_SECONDS = 1.0
_CLOCK_JUMP_SECONDS = 1.0
_LEARNED = ("workflowruns", "retrypolicies", "schedules")
"""Kinds that are known as a whole before the work begins."""
_DEFAULT_TTL = 86_400
"""Seconds; the API server fills it in, so only an object from before that knows it not."""


class Manager:
    """Knows every run, and works on those that something has happened to."""

    def __init__(
        self, tools: Tools, *, namespaces: tuple[str, ...] = (), workers: int = 32, kept: Limits | None = None
    ) -> None:
        """`kept`: what each namespace may keep of its finished runs; None for the default limits."""
        self.directory = Directory()
        self._tools = tools
        self._readiness = Readiness(tools.client, tools.definitions, tools.pods, tools.policies, tools.recorder)
        self._tasks: set[asyncio.Task[None]] = set()
        self._learned = asyncio.Event()
        self._namespaces: tuple[str | None, ...] = namespaces or (None,)
        self._runs: dict[str, Run] = {}
        self._schedules: dict[str, Schedule] = {}
        self._retention = Retention(
            tools.client,
            tools.recorder,
            self.directory,
            kept or Limits(),
            runs=self._runs,
            schedules=self._schedules,
            is_over=lambda run: self._over(run) is not None and not has_chores(run),
        )
        self._suspects: set[str] = set()
        """Uids of closed runs whose status was edited."""
        self._orphans: dict[Key, api.Object] = {}
        self._queue: KeyedQueue[Key] = KeyedQueue(
            self._work,
            clock=now,
            workers=workers,
            tenant=self._namespace_of,
            each=share(workers),
            name="runs",
        )
        self._versions: dict[str, str] = {}
        """By uid, the version that was seen last; the Directory knows that of closed runs."""
        self._listed: dict[tuple[str, str | None], str] = {}
        """By kind and namespace, the version of the first list; a watch continues there."""
        self._expiries = Expiries(SWEEP_SECONDS)
        self._checked: dict[str, int | None] = {}
        self._lagging: set[tuple[str, str]] = set()
        self._missed = {"workflowruns": 0, "pods": 0, "schedules": 0}
        self._swept = False
        self._log = structlog.get_logger("perdure.manager")
        tools.policies.changed = self._policies_changed
        tools.letters.suspect = self.suspect

    # Watch events

    def on_run(self, obj: api.Object, *, deleted: bool) -> None:
        """A watch tells: a WorkflowRun was seen, changed or deleted."""
        self._missed["workflowruns"] = 0
        self._take_run(obj, deleted=deleted)

    def see(self, obj: api.Object) -> None:
        """Take a run that was read as one that a watch tells of."""
        self._take_run(obj, deleted=False)

    def on_pod(self, obj: api.Object, *, deleted: bool) -> None:
        """A watch tells: a pod of some run was seen, changed or deleted."""
        self._missed["pods"] = 0
        self._take_pod(obj, deleted=deleted)

    def on_workflow(self, obj: api.Object, *, deleted: bool) -> None:
        """A watch tells: a Workflow was seen, changed or deleted. Runs wait for it; Schedules report what is wrong with it."""
        meta = obj["metadata"]
        key = ("workflow", meta["namespace"], meta["name"])
        # Its own status written is no news.
        changed = self._checked.get(meta["uid"]) != meta.get("generation")
        if changed or deleted:
            for schedule in self._schedules.values():
                if schedule.namespace == meta["namespace"] and schedule.observe_workflow(meta["name"]):
                    self._queue.wake(("schedule", schedule.uid))
        if deleted:
            self._checked.pop(meta["uid"], None)
            self._readiness.forget(meta["namespace"], meta["name"])
            self._queue.forget(key)
            return
        if changed:
            self._checked[meta["uid"]] = meta.get("generation")
            self._queue.wake(key)
        for run in self._runs.values():
            if run.ref.namespace == meta["namespace"] and run.waits_for_workflow == meta["name"]:
                self._queue.wake(("run", run.ref.uid))

    def on_policy(self, obj: api.Object, *, deleted: bool) -> None:
        """A watch tells: a RetryPolicy was seen, changed or deleted."""
        self._tools.policies.observe(obj, deleted=deleted)
        if not deleted:
            self._queue.wake(("policy", obj["metadata"]["namespace"], obj["metadata"]["name"]))

    def _policies_changed(self, namespace: str) -> None:
        for name in self._readiness.stale(namespace):
            self._queue.wake(("workflow", namespace, name))
        for run in self._runs.values():
            if run.ref.namespace == namespace and run.observe_policies():
                self._queue.wake(("run", run.ref.uid))
        for schedule in self._schedules.values():
            if schedule.namespace == namespace and schedule.waits_for_policy:
                self._queue.wake(("schedule", schedule.uid))

    def on_schedule(self, obj: api.Object, *, deleted: bool) -> None:
        """A watch tells: a Schedule was seen, changed or deleted."""
        self._missed["schedules"] = 0
        self._take_schedule(obj, deleted=deleted)

    def see_schedule(self, obj: api.Object) -> None:
        """Take a Schedule that was read or written as one that a watch tells of."""
        self._take_schedule(obj)

    def _take_schedule(self, obj: api.Object, *, deleted: bool = False) -> None:
        uid = obj["metadata"]["uid"]
        self._seen(obj, deleted=deleted)
        schedule = self._schedules.get(uid)
        if deleted or obj["metadata"].get("deletionTimestamp"):
            if schedule is not None:
                schedule.observe_gone()
                self._queue.wake(("schedule", uid))
        elif schedule is None:
            self._schedules[uid] = Schedule(
                self._tools.client,
                self._tools.recorder,
                self,
                self._tools.policies,
                obj,
                definitions=self._tools.definitions,
            )
            self._queue.wake(("schedule", uid))
        elif schedule.observe(obj):
            self._queue.wake(("schedule", uid))

    def _take_run(self, obj: api.Object, *, deleted: bool) -> None:
        uid = obj["metadata"]["uid"]
        self._seen(obj, deleted=deleted)
        run = self._runs.get(uid)
        over = _expiry(obj)
        before = self.directory.get(uid)
        self._enter(obj, deleted=deleted)
        if deleted or obj["metadata"].get("deletionTimestamp"):
            self._queue.forget(_expiry_key(obj))
            if run is not None:
                run.observe_gone()
                self._queue.wake(("run", uid))
            return
        if over is not None:
            self._remove_at(uid, over)
        if run is None:
            if self.directory.is_newer(obj):
                return  # the watch lags behind what was written here: the run has closed since, and is done
            if over is not None and not has_chores(obj):
                self._versions.pop(uid, None)
                if before is not None and _was_edited(before, obj):
                    self.suspect(obj)
                return  # closed: nothing is left to do but to let go of pods, which tell of themselves
            self._add(obj)
        elif run.observe(obj):
            self._queue.wake(("run", uid))

    def _remove_at(self, uid: str, over: datetime) -> None:
        """Remove a closed run when its time is over. Only those that are due soon have a timer."""
        entry = self.directory.get(uid)
        if entry is not None and not self._expiries.add(uid, over, now()):
            self._queue.wake_at(("expiry", entry.namespace, entry.name, uid), over)

    def _add(self, obj: api.Object) -> Run:
        uid = obj["metadata"]["uid"]
        run = self._runs[uid] = Run(self._tools, self, obj, lambda: self._queue.wake(("run", uid)))
        self._queue.wake(("run", uid))
        return run

    def _enter(self, obj: api.Object, *, deleted: bool) -> None:
        """Note which run that is, and wake those whom it concerns: its parent, and who waits for its workflow id."""
        self._tools.workers.seen(obj, deleted=deleted)
        if deleted:
            before, after = self.directory.drop(obj["metadata"]["uid"]), None
        else:
            before, after = self.directory.put(obj)
        self._queue_retention(obj["metadata"]["namespace"])
        letter = letter_of(obj)
        if letter is not None and (before is None or before.standing is not getattr(after, "standing", None)):
            self._queue.wake(("letter", obj["metadata"]["namespace"], letter))
        known = before or after
        if known is None or (
            before and after and (before.standing, before.successor) == (after.standing, after.successor)
        ):
            return
        if known.schedule_uid in self._schedules:
            self._queue.wake(("schedule", known.schedule_uid))
        parent = self._runs.get(known.parent_uid)
        if parent is not None:
            parent.observe_child(known.uid)
            self._queue.wake(("run", known.parent_uid))
        for other in self.directory.sharing(known):
            if other.standing is Standing.WAITING:
                self._queue.wake(("run", other.uid))
        if deleted:
            self._orphan_children(known)

    def _queue_retention(self, namespace: str) -> None:
        due = self._retention.observe(namespace)
        if due is not None:
            self._queue.wake_at(("retention", namespace), due)

    def _orphan_children(self, parent: Entry) -> None:
        """The object of a run is gone: the garbage collector removes its children but for those that are to close in order."""
        for child in self.directory.children_of(parent.namespace, parent.uid):
            if child.parent_close_policy is ParentClosePolicy.REQUEST_CANCEL and child.standing is not Standing.CLOSED:
                reason = f"its parent `{parent.name}` was deleted"
                self.ask(
                    child, inputs.CancelRequested(request_id=f"{parent.uid}/deleted", reason=reason), lambda _: None
                )

    # Between runs

    def noted(self, obj: api.Object) -> None:
        """A run was written, and is now like this."""
        self._enter(obj, deleted=False)

    def suspect(self, obj: api.Object) -> None:
        """The status of a closed run was edited: have it reported; what waits for its result learns when it is restored."""
        uid = obj["metadata"]["uid"]
        self._suspects.add(uid)
        if uid not in self._runs:
            self._add(obj)

    def _cleared(self, run: Run) -> None:
        """A run is as it was recorded: what waits for its result looks again."""
        uid = run.ref.uid
        entry = self.directory.get(uid)
        if uid not in self._suspects or entry is None:
            return
        self._suspects.discard(uid)
        letter = letter_of(run.object)
        if letter is not None:
            self._queue.wake(("letter", run.ref.namespace, letter))
        parent = self._runs.get(entry.parent_uid)
        if parent is not None:
            parent.observe_child(uid)
            self._queue.wake(("run", entry.parent_uid))
        if entry.schedule_uid in self._schedules:
            self._queue.wake(("schedule", entry.schedule_uid))

    def made(self, obj: api.Object) -> None:
        """A run was made by this process: it is worked on before a watch tells of it."""
        if obj["metadata"]["uid"] not in self._runs:
            self._take_run(obj, deleted=False)

    async def find(self, entry: Entry) -> Run | None:
        """The run in this process; None if it was deleted.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server could not be asked.
        """
        return self._runs.get(entry.uid) or await self._fetch(entry)

    @property
    def client(self) -> api.Client:
        """Speaks to the API server."""
        return self._tools.client

    @property
    def definitions(self) -> Definitions:
        """Finds and compiles definitions."""
        return self._tools.definitions

    @property
    def namespaces(self) -> tuple[str, ...] | None:
        """The namespaces that are this operator's; None: all."""
        return None if None in self._namespaces else tuple(filter(None, self._namespaces))

    def serves(self, namespace: str) -> bool:
        """Whether the runs of a namespace are this operator's."""
        return None in self._namespaces or namespace in self._namespaces

    @property
    def served(self) -> tuple[str, ...] | None:
        """The namespaces that this operator serves; None for the whole cluster."""
        return None if None in self._namespaces else tuple(filter(None, self._namespaces))

    def running(self, uid: str) -> Run | None:
        """The run, if this process works on it."""
        return self._runs.get(uid)

    def all_running(self) -> list[Run]:
        """The runs that this process works on."""
        return list(self._runs.values())

    def ask(self, entry: Entry, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        """Give a run a request; `then` is called with its answer, once that is recorded."""
        task = asyncio.get_running_loop().create_task(self._ask(entry, request, then))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, entry: Entry, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        try:
            await self.hand(entry, request, then)
        except (api.ApiError, *api.TRANSIENT) as error:
            self._log.warning("Could not ask a run, trying again", run=entry.name, error=repr(error))
            await asyncio.sleep(_ASK_AGAIN_SECONDS)
            self.ask(entry, request, then)

    async def hand(self, entry: Entry, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        """Give a run a request, as `ask`, and return when it has it: what is handed one after the other stays in order.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: it could not be given.
        """
        run = self._runs.get(entry.uid) or await self._fetch(entry)
        if run is None:
            message = f"WorkflowRun `{entry.name}` was deleted"
            then(Answer(ok=False, reason=ConditionReason.TARGET_NOT_FOUND, message=message))
            return
        run.ask(request, then)
        self._queue.wake(("run", entry.uid))

    async def _fetch(self, entry: Entry) -> Run | None:
        """A run that this process had no reason to know: it has closed."""
        url = api.path(api.PERDURE, entry.namespace, "workflowruns", entry.name)
        try:
            obj = await self._tools.client.get(url)
        except api.NotFoundError:
            return None
        if obj["metadata"]["uid"] != entry.uid:
            return None
        return self._runs.get(entry.uid) or self._add(obj)

    def withdraw(self, run_id: str, request_id: str) -> None:
        """Take a request back; what the run has recorded stays done."""
        run = self._runs.get(run_id)
        if run is not None:
            run.withdraw(request_id)

    def answered(self, entry: Entry, request_id: str) -> None:
        """Tell a run that its answer to a request was recorded by whoever asked."""
        run = self._runs.get(entry.uid)
        if run is not None:
            run.forget(request_id)

    async def ask_schedule(self, namespace: str, name: str, request: ScheduleRequest) -> ScheduleAnswer:
        """Give a Schedule a request; its answer, once that is recorded.

        A request is dealt with once, by its id: whoever does not know the answer any more may ask again.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: it could not be looked for.
        """
        schedule = await self._schedule(namespace, name)
        if schedule is None:
            message = f"there is no Schedule `{name}` in namespace `{namespace}`"
            return ScheduleAnswer(ok=False, reason=ConditionReason.TARGET_NOT_FOUND, message=message)
        answer: asyncio.Future[ScheduleAnswer] = asyncio.get_running_loop().create_future()
        schedule.ask(request, lambda given: None if answer.done() else answer.set_result(given))
        self._queue.wake(("schedule", schedule.uid))
        return await answer

    def withdraw_from_schedule(self, namespace: str, name: str, request_id: str) -> None:
        """Take a request to a Schedule back; what is recorded stays done."""
        for schedule in self._schedules_named(namespace, name):
            schedule.withdraw(request_id)

    def _schedules_named(self, namespace: str, name: str) -> list[Schedule]:
        """The Schedules of a name that are known: the one that there is, and those before it that are being forgotten."""
        return [each for each in self._schedules.values() if (each.namespace, each.name) == (namespace, name)]

    async def _schedule(self, namespace: str, name: str) -> Schedule | None:
        """A Schedule by its name, also one that no watch has shown yet."""

        def known() -> Schedule | None:
            return next((each for each in self._schedules_named(namespace, name) if not each.gone), None)

        if known() is None:
            try:
                self._take_schedule(await self._tools.client.get(api.path(api.PERDURE, namespace, "schedules", name)))
            except api.NotFoundError:
                return None
        return known()

    def _take_pod(self, obj: api.Object, *, deleted: bool) -> None:
        self._seen(obj, deleted=deleted)
        meta = obj["metadata"]
        run = self._runs.get((meta.get("labels") or {}).get(labels.RUN_ID_LABEL, ""))
        if run is not None:
            run.observe_pod_gone(obj) if deleted else run.observe_pod(obj)
            self._queue.wake(("run", run.ref.uid))
        elif not deleted and attempts.held(obj):
            self._take_orphan(obj)

    def _take_orphan(self, pod: api.Object) -> None:
        meta = pod["metadata"]
        key = ("pod", meta["namespace"], meta["name"], meta["uid"])
        self._orphans[key] = pod
        self._queue.wake(key)

    # Work

    def _namespace_of(self, key: Key) -> str:
        """Whose turn it is when a key is worked on."""
        known = self._runs.get(key[1]) or self._schedules.get(key[1])
        match known:
            case Run():
                return known.ref.namespace
            case Schedule():
                return known.namespace
            case None:
                return key[1]

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._learn())
            self._queue.start(group)
            group.create_task(self._tools.recorder.run())
            group.create_task(self._sweep_for_ever())
            group.create_task(kept.delete_for_ever(self._tools.client, self._namespaces))

    async def learned(self) -> None:
        """Wait until every run that there was at the beginning is known."""
        await self._learned.wait()

    @property
    def has_learned(self) -> bool:
        """Whether every run that there was at the beginning is known."""
        return self._learned.is_set()

    async def listed(self, plural: str, namespace: str | None) -> str:
        """The version of the first list of a kind, once; afterwards, and for other kinds, empty: a watch lists it itself."""
        if plural in _LEARNED:
            await self.learned()
        return self._listed.pop((plural, namespace), "")

    def takes(self, plural: str, obj: api.Object) -> bool:
        """Take a finished run that a watch has listed; everything else of a list goes through the handlers."""
        if plural != "workflowruns" or obj["metadata"]["uid"] in self._runs or _expiry(obj) is None or has_chores(obj):
            return False
        self._take_in(obj, self._take_run)
        return True

    async def _learn(self) -> None:
        """Know every run that there is before anything is decided about one of them.

        Each kind is listed once, page by page; watches continue where the lists end.
        """
        # The closed runs of Schedules are theirs to remove.
        takers: dict[str, Callable[..., None]] = {
            "workflowruns": self._take_run,
            "retrypolicies": self.on_policy,
            "schedules": self._take_schedule,
        }
        while True:
            try:
                for namespace in self._namespaces:
                    for plural in _LEARNED:
                        async for page in self._tools.client.pages(api.path(api.PERDURE, namespace, plural)):
                            self._listed[plural, namespace] = page.version
                            for _, obj in self._tools.client.objects(page):
                                self._take_in(obj, takers[plural])
                            await asyncio.sleep(0)
            except (api.ApiError, *api.TRANSIENT) as error:
                self._log.warning("Could not list the runs, trying again", error=repr(error))
                await asyncio.sleep(_ASK_AGAIN_SECONDS)
            else:
                self._learned.set()
                return

    def _take_in(self, obj: api.Object, take: Callable[..., None]) -> None:
        """Take in one of many: whatever is wrong with it, it does not keep the others from being taken in."""
        try:
            take(obj, deleted=False)
        except Exception:  # noqa: BLE001 - one object's trouble must not end the operator
            meta = obj["metadata"]
            self._log.exception(
                "Could not take in an object",
                kind=obj.get("kind"),
                namespace=meta.get("namespace"),
                name=meta.get("name"),
            )

    async def _work(self, key: Key) -> None:
        await self.learned()
        match key:
            case ("run", uid):
                await self._advance(key, uid)
            case ("pod", *_):
                await self._release_orphan(key)
            case ("expiry", *_):
                await self._remove_expired(key)
            case ("workflow", namespace, name):
                self._queue.wake_at(key, await self._readiness.tell(namespace, name, now()))
            case ("schedule", uid):
                await self._advance_schedule(key)
            case ("policy", namespace, name):
                await self._tools.policies.reconcile(namespace, name)
            case ("retention", namespace):
                self._queue.wake_at(key, await self._retention.enforce(namespace))
            case ("letter", namespace, name):
                await self._tools.letters.reconcile(namespace, name)

    async def _advance(self, key: Key, uid: str) -> None:
        run = self._runs.get(uid)
        if run is None:
            return
        with metrics.PASSES.time():
            wake = await run.advance()
        if run.done:
            self._runs.pop(uid, None)
            self._queue.forget(key)
            self._cleared(run)
        else:
            self._queue.wake_at(key, wake)
        metrics.TIMERS.set(self._queue.armed)
        metrics.RUNS_KNOWN.set(len(self._runs))

    async def _advance_schedule(self, key: Key) -> None:
        schedule = self._schedules.get(key[1])
        if schedule is None:
            return
        wake = await schedule.advance()
        if schedule.gone:
            self._schedules.pop(key[1], None)
            self._queue.forget(key)
        else:
            self._queue.wake_at(key, wake)
        metrics.SCHEDULES_KNOWN.set(len(self._schedules))

    async def _remove_expired(self, key: Key) -> None:
        """Remove a closed run whose time to be kept is over; its spec may have been given more time since.

        The runs of a Schedule are kept as long as its history limits say. One whose end is still to be recorded elsewhere waits.
        """
        _, namespace, name, uid = key
        entry = self.directory.get(uid)
        if entry is not None and entry.schedule_uid and await self._has_schedule(entry):
            return
        url = api.path(api.PERDURE, namespace, "workflowruns", name)
        client = self._tools.client
        again = await remove_expired(client, url, uid, self._over, Recorded(client).everywhere)
        if again is not None:
            self._remove_at(uid, again)

    def _over(self, run: api.Object) -> datetime | None:
        """When the time of a run is over; None for one whose status was edited, its times perhaps: it is reported and stays."""
        if edited(run.get("status") or {}, OF_RUNS):
            self.suspect(run)
            return None
        return _over(run)

    async def _has_schedule(self, entry: Entry) -> bool:
        """Whether the Schedule that a run belongs to exists; one that no watch has shown yet is read."""
        if entry.schedule_uid not in self._schedules:
            url = api.path(api.PERDURE, entry.namespace, "workflowruns", entry.name)
            try:
                owners = (await self._tools.client.get(url))["metadata"].get("ownerReferences") or ()
            except api.NotFoundError:
                return False
            for name in [owner["name"] for owner in owners if owner["uid"] == entry.schedule_uid]:
                await self._schedule(entry.namespace, name)
        return entry.schedule_uid in self._schedules

    async def _release_orphan(self, key: Key) -> None:
        """Let go of a pod whose run is closed or gone. While its run is open and just not seen yet, nothing is done."""
        pod = self._orphans.pop(key, None)
        if pod is None:
            return
        try:
            await self._release_orphan_pod(pod)
        except BaseException:
            self._orphans.setdefault(key, pod)  # unless it was seen again meanwhile
            raise

    async def _release_orphan_pod(self, pod: api.Object) -> None:
        meta = pod["metadata"]
        owner = _owning_run(pod)
        if owner is None:  # orphaned on purpose, or a stranger's: only our finalizer is ours to take away
            await self._tools.pods.drop_finalizer(pod)
            return
        name, uid = owner
        if uid in self._runs:
            self._take_pod(pod, deleted=False)
            return
        try:
            run = await self._tools.client.get(api.path(api.PERDURE, meta["namespace"], "workflowruns", name))
        except (api.NotFoundError, ValueError):
            run = None
        if run is not None and run["metadata"]["uid"] != uid:
            run = None
        if run is not None and edited(run.get("status") or {}, OF_RUNS):
            self.suspect(run)
            self._take_pod(pod, deleted=False)
            return
        if run is not None and _expiry(run) is None:
            self._take_run(run, deleted=False)
            self._take_pod(pod, deleted=False)
            return
        await self._tools.pods.release_by_name(pod, keep=run is not None)

    # Sweeping

    def _seen(self, obj: api.Object, *, deleted: bool) -> None:
        meta = obj["metadata"]
        if deleted:
            self._versions.pop(meta["uid"], None)
        else:
            self._versions[meta["uid"]] = meta["resourceVersion"]

    async def _sweep_for_ever(self) -> None:
        ahead = _ahead()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            ahead, before = _ahead(), ahead
            if abs(ahead - before) > _CLOCK_JUMP_SECONDS:
                self._log.warning("The clock has jumped", seconds=round(ahead - before, 3))
                for uid in self._schedules:
                    self._queue.wake(("schedule", uid))
            for uid, when in self._expiries.due(now()):
                self._remove_at(uid, when)
            try:
                await self.sweep()
            except (api.ApiError, *api.TRANSIENT) as error:
                self._log.warning("Could not sweep", error=repr(error))
            except Exception:  # noqa: BLE001 - one object's trouble must not end the operator
                self._log.exception("Could not sweep")

    async def sweep(self) -> None:
        """Compare what there is with what the watches have told; what lags since the last sweep is handed on.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server could not be asked.
        """
        client = self._tools.client
        before, self._lagging = self._lagging, set()
        absent = {*self._runs, *self._schedules, *self.directory.uids()}
        for namespace in self._namespaces:
            runs, pods = api.path(api.PERDURE, namespace, "workflowruns"), api.path(api.CORE, namespace, "pods")
            schedules = api.path(api.PERDURE, namespace, "schedules")
            await self._compare("workflowruns", client.versions(runs), before, absent, self._take_run)
            await self._compare(
                "pods", client.versions(pods, labelSelector=labels.RUN_ID_LABEL), before, absent, self._take_pod
            )
            async for obj in client.each(api.path(api.PERDURE, namespace, "retrypolicies")):
                self._take_in(obj, self.on_policy)
            await self._compare("schedules", client.versions(schedules), before, absent, self._take_schedule)
        if not self._swept or await self._drop_what_is_gone(absent):
            await self._look_after_letters()
        self._swept = True

    async def _compare(
        self,
        kind: str,
        pages: AsyncIterator[list[Stored]],
        before: set[tuple[str, str]],
        absent: set[str],
        take: Callable[..., None],
    ) -> None:
        """Read and hand on what no watch has told of for two sweeps.

        Args:
            kind: Plural of the kind.
            pages: What there is of it.
            before: What the sweep before has found.
            absent: Ids that have not been found yet; those of what there is are removed.
            take: Takes an object.
        """
        group = api.CORE if kind == "pods" else api.PERDURE
        missed = 0
        async for page in pages:
            absent.difference_update(stored.uid for stored in page)
            for each in page:
                late = self._version_of(each.uid) != each.version
                if late:
                    self._lagging.add((each.uid, each.version))
                late = late and (each.uid, each.version) in before
                if not late and not (kind == "pods" and self._is_orphan(each)):
                    continue
                try:
                    obj = await self._tools.client.get(api.path(group, each.namespace, kind, each.name))
                except (api.NotFoundError, api.UnreadableError):
                    continue
                if obj["metadata"]["uid"] == each.uid:
                    self._take_in(obj, take)
                    missed += late
        if missed:
            self._missed[kind] += 1
            metrics.WATCH_LAG.inc(missed)
            self._log.warning("The watch had not told of changes", kind=kind, objects=missed)

    def _is_orphan(self, pod: Stored) -> bool:
        """Whether a pod is held for a run that is not worked on: a run that does not exist, or has closed, releases none."""
        return labels.FINALIZER in pod.finalizers and pod.labels.get(labels.RUN_ID_LABEL) not in self._runs

    def _version_of(self, uid: str) -> str | None:
        """The version of an object that was seen last."""
        seen = self._versions.get(uid)
        return seen if seen is not None else self.directory.closed_version(uid)

    async def _drop_what_is_gone(self, absent: set[str]) -> bool:
        """What was deleted unseen must not stay known for ever; whether that was a run."""
        dropped = False
        for uid in absent:
            run, schedule, entry = self._runs.get(uid), self._schedules.get(uid), self.directory.get(uid)
            if run is not None:
                if uid in self._versions and await self._is_gone(run.ref.namespace, "workflowruns", run.ref.name, uid):
                    run.observe_gone()
                    self._queue.wake(("run", uid))
                    dropped = True
            elif schedule is not None:
                if uid in self._versions and await self._is_gone(schedule.namespace, "schedules", schedule.name, uid):
                    schedule.observe_gone()
                    self._queue.wake(("schedule", uid))
            elif entry is not None and await self._is_gone(entry.namespace, "workflowruns", entry.name, uid):
                meta = {"namespace": entry.namespace, "name": entry.name, "uid": uid}
                self._take_run({"metadata": meta, "spec": {}}, deleted=True)
        return dropped

    async def _look_after_letters(self) -> None:
        """The run of a re-drive may have been deleted unseen: they are asked what has become of it."""
        for namespace in self._namespaces:
            async for obj in self._tools.client.each(api.path(api.PERDURE, namespace, "deadletters")):
                if runs_again(obj):
                    self._queue.wake(("letter", obj["metadata"]["namespace"], obj["metadata"]["name"]))

    async def _is_gone(self, namespace: str, plural: str, name: str, uid: str) -> bool:
        try:
            return (await self._tools.client.stored(api.path(api.PERDURE, namespace, plural, name))).uid != uid
        except api.NotFoundError:
            return True

    # Health

    def trouble(self) -> str | None:
        """What is wrong with the watches; None when all is well."""
        for kind, sweeps in self._missed.items():
            if sweeps >= _DEAD_AFTER_SWEEPS:
                return f"the watch of {kind} is dead: {sweeps} sweeps have found changes, and it has told of none"
        return None


def _ahead() -> float:
    """Seconds that the wall clock is ahead of one that is never set."""
    return now().timestamp() - asyncio.get_running_loop().time()


def _was_edited(before: Entry, run: api.Object) -> bool:
    """Whether someone has edited the status of a run that was known as closed. Looked at only if the run was written since."""
    written = before.standing is Standing.CLOSED and before.version != run["metadata"]["resourceVersion"]
    return written and bool(edited(run.get("status") or {}, OF_RUNS))


def _owning_run(pod: api.Object) -> tuple[str, str] | None:
    """Name and uid of the WorkflowRun that a pod belongs to; None for one that only wears our labels."""
    uid = (pod["metadata"].get("labels") or {}).get(labels.RUN_ID_LABEL)
    for owner in pod["metadata"].get("ownerReferences") or ():
        if owner["kind"] == "WorkflowRun" and owner["uid"] == uid:
            return owner["name"], owner["uid"]
    return None


def _over(run: api.Object) -> datetime | None:
    """When the time of a run is over; one with chores is looked at again a little later."""
    over = _expiry(run)
    return max(over, now() + timedelta(seconds=_ASK_AGAIN_SECONDS)) if over and has_chores(run) else over


def _expiry(run: api.Object) -> datetime | None:
    """When the time to live of a run ends; None while it is open."""
    return None if is_open(run.get("status") or {}) else expiry(run, _DEFAULT_TTL)


def _expiry_key(run: api.Object) -> Key:
    meta = run["metadata"]
    return "expiry", meta["namespace"], meta["name"], meta["uid"]
