"""Operations: what people ask, done once each, and answered in the Operation's own status.

    Operation ─▶ note whom to ask ─▶ ask the run ─▶ its commit holds the Operation's UID ─▶ answer ─▶ removed after its time
                   └ killed here: asked again ┘              └ killed here: asked again; the run says that it knows

Order. Of one target, Operations are taken up in the order in which they were made, whatever order a watch tells of them in: each
time, all that wait are listed. That order is their first resourceVersion; it is noted with the run that is asked, before that run
is asked. So whoever goes on after a crash asks the same run, in the same order, and no run that has followed it meanwhile.

A request that meets a run which has just closed was not heeded. Where the target is a workflow id whose chain goes on, the next
run is asked, and everybody behind waits for that, so that nobody overtakes.
"""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, assert_never

import pydantic
import structlog

from perdure.api.common import mistakes
from perdure.api.operation import Operation, OperationSpec, TargetKind
from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Entry
from perdure.controller.errors import RefusedError, may_pass
from perdure.controller.expiry import expiry, remove_expired
from perdure.controller.informers.first_lists import FirstLists
from perdure.controller.informers.schedules import Schedules
from perdure.controller.informers.workflowruns import WorkflowRuns
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.operations.immediate_requests import ImmediateRequests
from perdure.controller.operations.operation_keys import AnswerKey, ForgetKey, Key, TargetKey
from perdure.controller.operations.operation_resync import OperationResync
from perdure.controller.operations.operation_status import Answers, identity
from perdure.controller.operations.pending_operations import pending
from perdure.controller.operations.targets import HoldError, Targets
from perdure.controller.peers import OVER
from perdure.controller.queue.fairness import share
from perdure.controller.queue.keyed_queue import KeyedQueue
from perdure.controller.queue.keys import ExpiryKey
from perdure.controller.tools import Tools
from perdure.engine.inputs import Answer
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.runtime.chains import created_by
from perdure.runtime.requests import request_of, too_much
from perdure.runtime.times import read_time

_SOON = timedelta(milliseconds=200)
_REMEMBERED = timedelta(minutes=1)
"""How long a run knows an Operation after that was answered: until nobody can take it for one that waits."""
_DEFAULT_TTL = 3_600
_NOT_FOUND = ConditionReason.TARGET_NOT_FOUND


@dataclass(slots=True)
class _Asked:
    """An Operation that was handed to a run, and what that has answered."""

    obj: kube.Object
    entry: Entry
    answer: Answer | None = None
    again: bool = False
    """The run had closed; the next one of its chain is to be asked."""


class Operations:
    """All Operations of this operator."""

    def __init__(
        self,
        tools: Tools,
        runs: WorkflowRuns,
        schedules: Schedules,
        first_lists: FirstLists,
        served: ServedNamespaces,
        *,
        workers: int = 16,
    ) -> None:
        """Begin to serve Operations.

        Args:
            tools: Speaks to the API server, re-drives DeadLetters and finds definitions.
            runs: The runs that are asked.
            schedules: The Schedules that are asked.
            first_lists: Nobody is asked before they are complete.
            served: Where.
            workers: How many targets are served at a time.
        """
        self._client = tools.client
        self._runs = runs
        self._schedules = schedules
        self._first_lists = first_lists
        self._targets = Targets(tools.client, runs)
        self._answers = Answers(tools.client, tools.recorder)
        self._immediate = ImmediateRequests(tools, runs, schedules, self._targets, self._answers)
        self._resync = OperationResync(tools.client, served, self._take)
        self.trouble = self._resync.trouble
        """Why the watch counts as stale; None while it works."""
        self._queue: KeyedQueue[Key] = KeyedQueue(
            self._work,
            clock=now,
            workers=workers,
            tenant=lambda key: key.namespace,
            each=share(workers),
            name="operations",
        )
        self._asked: dict[str, _Asked] = {}
        self._held: set[TargetKey] = set()
        """Targets with something behind a request that is not answered yet."""
        self._forgotten: set[str] = set()
        self._full: set[str] = set()
        """Those that leave no room for an answer in their status: an Event has told it."""
        self._log = structlog.get_logger("perdure.operations")

    # Watch events

    def on_operation(self, obj: kube.Object, *, deleted: bool) -> None:
        """A watch tells: an Operation was seen, changed or deleted."""
        self._resync.observe(obj, deleted=deleted)
        self._take(obj, deleted=deleted)

    def _take(self, obj: kube.Object, *, deleted: bool = False) -> None:
        uid, status = obj["metadata"]["uid"], obj.get("status") or {}
        done = read_time(status.get("completionTime"))
        if deleted or obj["metadata"].get("deletionTimestamp"):
            self._give_up(uid)
            target = obj["spec"]["target"]
            if target["kind"] == TargetKind.SCHEDULE and "name" in target:
                self._schedules.withdraw(obj["metadata"]["namespace"], target["name"], uid)
        if deleted:
            self._queue.forget(ExpiryKey.of(obj))
            self._full.discard(uid)
            self._have_forgotten(obj, now())
            self._forgotten.discard(uid)
        elif done:
            self._queue.wake_at(ExpiryKey.of(obj), _expiry(obj))
            self._have_forgotten(obj, done)
        elif uid not in self._asked:  # what a run was handed, its answer takes further
            self._queue.wake(TargetKey.of(obj))

    def _give_up(self, uid: str) -> None:
        """It was deleted: what its run has not recorded is not done."""
        asked = self._asked.pop(uid, None)
        if asked is not None:
            self._runs.withdraw(asked.entry.uid, uid)
            self._go_on(TargetKey.of(asked.obj))

    def _have_forgotten(self, obj: kube.Object, since: datetime) -> None:
        """In a while, the run need not remember an Operation that was answered, or is gone."""
        uid, run_id = obj["metadata"]["uid"], (obj.get("status") or {}).get("runId")
        if run_id and uid not in self._forgotten:
            self._forgotten.add(uid)
            # Not at once after a start: the run is not known yet.
            key = ForgetKey(obj["metadata"]["namespace"], run_id, uid)
            self._queue.wake_at(key, max(since + _REMEMBERED, now() + timedelta(seconds=10)))

    # Work

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._queue.start(group)
            group.create_task(self._resync.run())

    async def _work(self, key: Key) -> None:
        await self._first_lists.wait()
        match key:
            case TargetKey():
                await self._serve(key)
            case AnswerKey():
                await self._answered(key)
            case ExpiryKey():
                url = kube.path(kube.PERDURE, key.namespace, "operations", key.name)
                self._queue.wake_at(key, await remove_expired(self._client, url, key.uid, _expiry))
            case ForgetKey():
                entry = self._runs.directory.get(key.run_id)
                if entry is not None:
                    self._runs.answered(entry, key.uid)
            case _:
                assert_never(key)

    async def _serve(self, key: TargetKey) -> None:
        """Take up what waits for a target, in order, as far as it goes now."""
        self._held.discard(key)
        before = ""
        async for obj in pending(self._client, key):
            asked = self._asked.get(obj["metadata"]["uid"])
            if obj["metadata"]["uid"] in self._full:
                continue
            if asked is not None and not asked.again:
                before = asked.entry.uid
                continue
            try:
                entry = await self._take_up(obj, asked, before)
            except kube.NotFoundError:
                continue  # deleted meanwhile
            except kube.ConflictError:
                self._queue.wake(key)  # somebody has changed it, or seen to it: look again
                return
            except HoldError as held:
                self._hold(key, held)
                return
            except Exception as error:
                if _may_pass(error):
                    raise
                # What cannot be processed does not block what is behind it.
                self._log.warning("An Operation cannot be processed", name=obj["metadata"]["name"], exc_info=error)
                message = f"the operator cannot process it: {type(error).__name__}: {error}"
                failed = Answer(ok=False, reason=ConditionReason.INTERNAL_ERROR.value, message=message)
                self._asked.pop(obj["metadata"]["uid"], None)
                await self._finish(obj, failed, None)
                continue
            before = entry.uid if entry is not None else before

    async def _take_up(self, obj: kube.Object, asked: _Asked | None, before: str) -> Entry | None:
        """Take up an Operation: the run that it asks; None if it was answered at once.

        Args:
            obj: The Operation.
            asked: The run that it has asked in vain, if it has.
            before: Id of the run that those before it wait for; empty where none does.

        Raises:
            NotFoundError, ConflictError: it was deleted, or has changed.
            HoldError: it has to wait, and what is behind it too.
        """
        uid = obj["metadata"]["uid"]
        try:
            spec = _spec(obj)
            done = await self._immediate.process(obj, spec, before)
            if done is not None:
                await self._finish(done.obj, done.answer, done.entry, done.result)
                return None
            request = request_of(spec, uid, identity(obj), created_by(obj))
            if (wrong := too_much(request)) is not None:
                raise RefusedError(ConditionReason.PAYLOAD_TOO_LARGE, wrong)  # noqa: TRY301 (handled as what `_find` raises)
            entry = await self._targets.find(obj, request, again=asked is not None)
        except RefusedError as error:
            self._asked.pop(uid, None)
            await self._finish(obj, Answer(ok=False, reason=error.reason.value, message=error.message), None)
            return None
        if before not in {"", entry.uid}:
            raise HoldError(until_answered=True)
        obj = await self._answers.note(obj, entry)
        asked = self._asked[uid] = _Asked(obj, entry)
        try:
            await self._runs.hand(entry, request, partial(self._take_answer, asked))
        except BaseException:
            self._asked.pop(uid, None)
            raise
        return entry

    def _hold(self, key: TargetKey, held: HoldError) -> None:
        if held.until_answered:
            self._held.add(key)
        else:
            self._queue.wake_at(key, now() + _SOON)

    def _go_on(self, key: TargetKey) -> None:
        """Something was answered: see to what waits behind it."""
        if key in self._held:
            self._queue.wake(key)

    def _take_answer(self, asked: _Asked, answer: Answer) -> None:
        asked.answer = answer
        self._queue.wake(AnswerKey.of(asked.obj))

    async def _answered(self, key: AnswerKey) -> None:
        """A run has answered: write it down, or ask the next one."""
        asked = self._asked.get(key.uid)
        if asked is None or asked.answer is None or asked.again:
            return
        obj, answer, target = asked.obj, asked.answer, TargetKey.of(asked.obj)
        if answer.reason in OVER and "workflowId" in obj["spec"]["target"]:
            await self._targets.look(asked.entry.namespace, asked.entry.workflow_id)
            if self._targets.goes_on(obj, asked.entry):
                asked.again = True
                self._queue.wake(target)
                return
        await self._finish(obj, answer, asked.entry)
        self._asked.pop(key.uid, None)
        self._go_on(target)

    async def _finish(
        self, obj: kube.Object, answer: Answer, entry: Entry | None, result: dict[str, Any] | None = None
    ) -> None:
        """Have the answer written, unless it was, or the Operation is gone; as an Event where its status has no room."""
        try:
            written = await self._answers.finish(obj, answer, entry, result)
        except kube.TooLargeError:
            self._full.add(obj["metadata"]["uid"])
            return
        if written is not None:
            self._take(written)


def _may_pass(error: Exception) -> bool:
    """Whether an error is one of the API server, or of the way to it, that may be gone at the next try."""
    return may_pass(error) and not isinstance(error, (kube.TooLargeError, kube.UnreadableError))


def _spec(obj: kube.Object) -> OperationSpec:
    """What an Operation asks.

    Raises:
        RefusedError: it cannot be read.
    """
    try:
        return Operation.parse({**obj, "status": None}).spec
    except pydantic.ValidationError as error:
        raise RefusedError(ConditionReason.INVALID_SPEC, "; ".join(mistakes(error))) from error


def _expiry(obj: kube.Object) -> datetime | None:
    """When the time to live of an answered Operation ends; None while it is not answered."""
    return expiry(obj, _DEFAULT_TTL)
