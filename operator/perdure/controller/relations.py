"""What a run has to do with other runs: its children, those it signals or asks to cancel, the one that follows it.

All of it comes after the commit: the committed state says what is to be there. Names are locks, and requests carry an id, so
whatever is done again after a crash is found done. What comes of it returns as inputs of the next pass.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Protocol

import msgspec
import structlog

from perdure.api import labels
from perdure.api.names import child_name
from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Directory, Entry, Standing, entry_of
from perdure.controller.refusals import LONGEST_MESSAGE, Refusals, is_for_now
from perdure.controller.segments import past_of
from perdure.controller.status import Status
from perdure.engine import events as ev
from perdure.engine import history, inputs
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.inputs import Answer, ChildOutcome
from perdure.engine.starts import ParentClosePolicy, too_deep
from perdure.engine.state import PendingChild, PendingExternal, State
from perdure.kube import client as api
from perdure.observe import metrics
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import (
    Ancestor,
    Reset,
    adopted,
    child_run,
    depth_of,
    is_child,
    is_successor,
    parent_of,
    successor_run,
)
from perdure.runtime.commits import OF_RUNS, edited
from perdure.runtime.deadletters import dead_letter, is_same_letter

_OUTCOMES = {
    "Completed": ChildOutcome.COMPLETED,
    "Failed": ChildOutcome.FAILED,
    "Cancelled": ChildOutcome.CANCELLED,
    "TimedOut": ChildOutcome.TIMED_OUT,
    "Terminated": ChildOutcome.TERMINATED,
}
SUCCESSOR_REFUSED = ConditionReason.SUCCESSOR_REFUSED.value
_LETTER_NAMES_TRIED = 10
ALREADY_STARTED = ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED.value
"""Failure type of a run that was not started because its workflow id is taken."""
NOT_FOUND = "ExternalWorkflowExecutionNotFound"
"""Failure type of a signal or cancellation for which no run is open (temporal.api.enums.v1)."""
OVER = frozenset({inputs.CLOSED, ConditionReason.TARGET_NOT_FOUND.value})
"""Answers of a run that has ended before it could heed a request."""
_SOON_SECONDS = 0.2
"""After this the run that is to be asked is looked for again."""


class Peers(Protocol):
    """The other runs of this operator."""

    directory: Directory

    def ask(self, entry: Entry, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        """Give a run a request; `then` is called with its answer, once that is recorded."""
        ...

    def noted(self, obj: api.Object) -> None:
        """A run was written, and is now like this: nobody has to wait for a watch to tell."""
        ...

    def suspect(self, obj: api.Object) -> None:
        """The status of a closed run was edited: have it reported; those who wait for its result hear when it is restored."""
        ...

    def answered(self, entry: Entry, request_id: str) -> None:
        """Tell a run that its answer to a request was recorded by whoever asked."""
        ...


@dataclass(frozen=True, slots=True)
class _Told:
    """Something for the engine, and what to do once it is recorded."""

    input: inputs.RunInput
    recorded: Callable[[], None] | None = None


class Relations:
    """The relations of one run. The ``observe…`` methods may be called at any time."""

    def __init__(  # noqa: PLR0917 (what the run has)
        self,
        client: api.Client,
        run: RunRef,
        reset: Reset | None,
        peers: Peers,
        wake: Callable[[], None],
        refused: Callable[[str], None],
    ) -> None:
        """Begin to look after the relations of a run.

        Args:
            client: To the API server.
            run: The run.
            reset: What the run begins with of another one.
            peers: The other runs.
            wake: Asks for another pass of the run.
            refused: Told, once for each, why the API server refuses an object that the run creates.
        """
        self._client = client
        self._run = run
        self._reset = reset
        self._peers = peers
        self._wake = wake
        self._news: set[str] = set()
        self._inputs: list[_Told] = []
        self._asked: set[str] = set()
        self._made: set[str] = set()
        self._refusals = Refusals(refused)
        self._gone = False
        """Whether a run that belongs to this one has disappeared since the children were looked at."""
        self._log = structlog.get_logger("perdure.relations").bind(namespace=run.namespace, run=run.name)

    @property
    def settled(self) -> bool:
        """Whether nothing waits to be told to the engine."""
        return not self._news and not self._inputs

    # Observing

    def observe_child(self, uid: str) -> None:
        """A run that has this one as its parent has started, closed or gone."""
        self._news.add(uid)

    def look_again(self) -> None:
        """Look at all children, and ask once more for what was asked: what was known may be old."""
        self._news |= {entry.uid for entry in self._peers.directory.children_of(self._run.namespace, self._run.uid)}
        self._asked.clear()
        self._made.clear()

    def taken(self, count: int) -> None:
        """The first `count` of what was gathered is recorded."""
        for told in self._inputs[:count]:
            if told.recorded is not None:
                told.recorded()
        del self._inputs[:count]

    async def gather(self, state: State) -> list[inputs.RunInput]:
        """What has become of children and requests; to be gathered again until it is `taken`."""
        children = {child.initiated_event_id: child for child in state.children.values()}
        for uid in sorted(self._news):
            entry = self._peers.directory.get(uid)
            self._gone |= entry is None
            child = children.get(entry.initiated_event_id) if entry and not state.closed else None
            if entry is not None and child is not None:
                self._inputs += map(_Told, await self._read(child, entry, exact=state.code is not None))
            self._news.discard(uid)
        if not state.closed:
            self._inputs += map(_Told, await self._lost(state))
            self._inputs += map(_Told, await self._lost_unstarted(state))
        self._gone = False
        return [told.input for told in self._inputs]

    async def _read(self, child: PendingChild, entry: Entry, *, exact: bool) -> list[inputs.RunInput]:  # noqa: PLR0911 (one for each case)
        """What a run of a child's chain tells. `exact`: as the child has said it, also what is not plain JSON."""
        number = child.initiated_event_id
        if entry.standing is Standing.WAITING:
            return []
        if entry.standing is Standing.OPEN:
            if child.start is None:
                return []
            return [inputs.ChildStarted(initiated_event_id=number, run_id=entry.first_uid)]
        try:
            obj = await self._client.get(api.path(api.PERDURE, entry.namespace, "workflowruns", entry.name))
        except api.NotFoundError:
            return []
        status = obj.get("status") or {}
        if edited(status, OF_RUNS):
            self._peers.suspect(obj)
            return []
        closing = _closing_event(status)
        failure = ev.failure_of(closing) if closing is not None else None
        if has_successor(status):
            return []
        if refused := successor_refused(status):
            failure = _application(SUCCESSOR_REFUSED, f"the run was to go on in another one: {refused}")
        if failure is not None and failure.type == ALREADY_STARTED:
            return [inputs.ChildStartFailed(initiated_event_id=number, failure=failure)]
        return [
            inputs.ChildClosed(
                initiated_event_id=number,
                run_id=entry.uid,
                outcome=_OUTCOMES.get(status.get("phase", ""), ChildOutcome.TERMINATED),
                result=_result(status) if exact else status.get("output"),
                failure=failure,
                retry_state=getattr(closing, "retry_state", None),
            )
        ]

    async def _lost(self, state: State) -> list[inputs.RunInput]:
        """Children that have started, and whose runs were deleted. Those that no watch has shown yet are read."""
        started = {child.initiated_event_id for child in state.children.values() if child.start is None}
        if not started - self._known_children():
            return []
        async for obj in self._children_of(self._run.uid):
            self._peers.noted(obj)
        there = self._known_children()
        return [
            inputs.ChildClosed(
                initiated_event_id=child.initiated_event_id,
                run_id=child.run_id,
                outcome=ChildOutcome.TERMINATED,
                failure=Failure(kind=FailureKind.TERMINATED, message="its WorkflowRun was deleted"),
            )
            for child in state.children.values()
            if child.start is None and child.initiated_event_id not in there
        ]

    def _children_of(self, uid: str) -> AsyncIterator[api.Object]:
        """The runs whose parent that is, from the API server itself."""
        url = api.path(api.PERDURE, self._run.namespace, "workflowruns")
        return self._client.each(url, labelSelector=f"{labels.PARENT_RUN_ID_LABEL}={uid}")

    def _known_children(self) -> set[int]:
        """The events that have initiated the children whose runs are known."""
        children = self._peers.directory.children_of(self._run.namespace, self._run.uid)
        return {entry.initiated_event_id for entry in children}

    async def _lost_unstarted(self, state: State) -> list[inputs.RunInput]:
        """Children that were made and deleted before they had started. Looked for where a run of ours has gone."""
        if not self._gone:
            return []
        there = self._known_children()
        message = "its WorkflowRun was deleted before it had started"
        return [
            inputs.ChildStartFailed(initiated_event_id=number, failure=_application(NOT_FOUND, message))
            for child in state.children.values()
            if child.start is not None
            and f"child/{(number := child.initiated_event_id)}" in self._made
            and number not in there
            and await self._unseen(child) is None
        ]

    # After the commit

    def has_to_do(self, state: State, now: datetime) -> bool:
        """Whether the state asks for something that was not done yet, and may be tried now."""
        return any(not self._refusals.waits(key, now) for key in _tasks(state) - self._asked - self._made)

    def refused(self, state: State) -> str:
        """Why the API server refuses an object that the state asks for; empty if it refuses none."""
        return self._refusals.message(_tasks(state) - self._made) if self._refusals else ""

    def next_try(self, state: State) -> datetime | None:
        """When to retry what the API server has refused; None if it refuses nothing."""
        return self._refusals.next_try(_tasks(state) - self._made) if self._refusals else None

    async def follow_up(self, state: State, run: api.Object, status: Status, now: datetime) -> None:
        """Do what the committed state asks for. What the API server refuses for now delays nothing else.

        Args:
            state: The state, committed.
            run: The run.
            status: Its status, as committed.
            now: The time.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server did not do its part; to be called again.
        """
        if state.closed and any(f"close/{key}" not in self._asked for key in state.children):
            async for obj in self._children_of(self._run.uid):  # a watch may not have shown them all
                self._peers.noted(obj)
        for key, child in state.children.items():
            if _is_to_be_made(child, state):
                name = child_name(self._run.name, child.initiated_event_id)
                priority = state.code.priority if state.code is not None else None
                make = partial(self._make_child, child, depth_of(run) + 1, priority)
                await self._unless_refused(f"child/{key}", f"the child `{name}`", now, make)
            if state.closed:
                await self._close_child(key, child)
        for key, external in state.externals.items():
            self._reach(key, external, state)
        for key, marker in state.markers.items():
            write = partial(self._set_aside, key, marker, run, status)
            await self._unless_refused(f"marker/{key}", "a DeadLetter", now, write)
        if state.start_successor and "successor" not in self._made:
            make = partial(self._make_successor, state, run, status)
            await self._unless_refused("successor", "the run that continues this one", now, make)

    async def _unless_refused(self, key: str, what: str, now: datetime, create: Callable[[], Awaitable[None]]) -> None:
        """Create an object, unless it is too early to try again. That it is refused for now is noted."""
        if self._refusals.waits(key, now):
            return
        try:
            await create()
        except api.ApiError as error:
            if not is_for_now(error):
                raise
            self._refusals.note(key, what, error, now)
        else:
            self._refusals.clear(key)

    def _is_taken_over(self, child: PendingChild) -> bool:
        """Whether a child of the run that was reset goes on as this one's."""
        children = self._peers.directory.children_of(self._run.namespace, self._run.uid)
        return any(entry.initiated_event_id == child.initiated_event_id for entry in children)

    async def _make_child(self, child: PendingChild, depth: int, priority: Any) -> None:
        key = f"child/{child.initiated_event_id}"
        if key in self._made or (self._reset and self._is_taken_over(child)):
            self._made.add(key)
            return
        body = child_run(self._run, child, depth, priority)
        url = api.path(api.PERDURE, self._run.namespace, "workflowruns")
        failure = too_deep(depth)
        try:
            if failure is None:
                await self._client.create(url, body)
        except api.AlreadyExistsError:
            name = body["metadata"]["name"]
            found = await self._client.get(api.path(api.PERDURE, self._run.namespace, "workflowruns", name))
            if not is_child(found, self._run, child):
                message = f"there is a WorkflowRun `{name}` already, which is no child of this run"
                failure = _application(ALREADY_STARTED, message)
        except (api.InvalidError, api.TooLargeError) as error:
            failure = _application("InvalidChildWorkflow", error.message)
        self._made.add(key)
        if failure is not None:
            self._tell(inputs.ChildStartFailed(initiated_event_id=child.initiated_event_id, failure=failure))

    async def _close_child(self, key: str, child: PendingChild) -> None:
        """Apply the parent close policy to a child: to the run of its chain that is open, if any is."""
        chore = inputs.ChoreDone(chore=f"child/{key}")
        entries = [
            entry
            for entry in self._peers.directory.children_of(self._run.namespace, self._run.uid)
            if entry.initiated_event_id == child.initiated_event_id
        ]
        if any(entry.successor for entry in entries):
            self._asked.discard(f"close/{key}")  # the next run of the chain is about to be made, and is asked then
            return
        target = next((entry for entry in entries if entry.standing is not Standing.CLOSED), None)
        if target is None or child.parent_close_policy is ParentClosePolicy.ABANDON:
            self._once(f"close/{key}", lambda: self._tell(chore))
            return
        request_id = f"{self._run.uid}/{key}/close"
        request: inputs.Request
        if child.parent_close_policy is ParentClosePolicy.REQUEST_CANCEL:
            request = inputs.CancelRequested(request_id=request_id, reason=f"its parent `{self._run.name}` has closed")
        else:
            request = inputs.TerminateRequested(
                request_id=request_id, reason=f"its parent `{self._run.name}` has closed"
            )

        def answered(answer: Answer) -> None:
            if answer.reason == inputs.CLOSED:  # it may have continued as new just before: the next run is asked
                self._ask_later(f"close/{key}")
            else:
                self._tell(chore)

        self._once(f"close/{key}", lambda: self._peers.ask(target, request, answered))

    async def take_over(self, base: Ancestor, children: Iterable[PendingChild]) -> None:
        """Make the children of a run that is closed, and goes on as this one, children of this one.

        Args:
            base: The run that was reset.
            children: Those that count.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server did not do its part; to be called again.
        """
        numbers = {child.initiated_event_id for child in children}
        async for found in self._children_of(base.run_id):
            tie = parent_of(found)
            if tie is not None and tie.run_id == base.run_id and tie.initiated_event_id in numbers:
                url = api.path(api.PERDURE, self._run.namespace, "workflowruns", found["metadata"]["name"])
                answer = await self._client.merge(url, adopted(found, self._run))
                self._peers.directory.put({**found, "metadata": answer["metadata"]})

    async def _unseen(self, child: PendingChild) -> Entry | None:
        """A child that was made and that no watch has shown yet."""
        name = child_name(self._run.name, child.initiated_event_id)
        try:
            found = await self._client.get(api.path(api.PERDURE, self._run.namespace, "workflowruns", name))
        except api.NotFoundError:
            return None
        return entry_of(found) if is_child(found, self._run, child) else None

    def _reach(self, key: str, external: PendingExternal, state: State) -> None:
        """Give another run a signal, or a request to cancel itself."""
        number, asked, closed = external.initiated_event_id, f"external/{key}", state.closed
        target = self._target(external)
        if target is None:
            self._miss(asked, external, state)
            return
        # What was begun before a reset may have been asked for by the run before: it is the same request.
        request_id = f"{(self._reset and self._reset.origin(number)) or self._run.uid}/{key}"
        request: inputs.Request
        if external.signal_id is None:
            request = inputs.CancelRequested(request_id=request_id, reason=external.reason, identity=self._run.name)
        else:
            request = inputs.SignalRequested(
                request_id=request_id,
                signal_name=external.signal_name,
                input=external.input,
                identity=self._run.name,
                header=external.header,
            )

        def answered(answer: Answer) -> None:
            over = answer.reason in OVER and _means_chain(external) and self._peers.directory.goes_on(target)
            if over or answer.reason == inputs.CLOSING:
                self._ask_later(asked)
                return
            failure = None if answer.ok or closed else _application(NOT_FOUND, answer.message)
            told = inputs.ExternalDone(initiated_event_id=number, failure=failure)
            self._tell(told, lambda: self._peers.answered(target, request_id))

        self._once(asked, lambda: self._peers.ask(target, request, answered))

    def _miss(self, asked: str, external: PendingExternal, state: State) -> None:
        """No run can be asked: one is to come, or that is the answer."""
        namespace, workflow_id, directory = self._run.namespace, external.workflow_id, self._peers.directory
        if any(child.start and child.workflow_id == workflow_id for child in state.children.values()):
            return  # a child that is being made: asked once it is there
        if _means_chain(external) and directory.gap(namespace, workflow_id):
            self._once(asked, lambda: self._ask_later(asked))
            return
        message = f"no run of workflow id `{workflow_id}` is open in namespace `{namespace}`"
        # To be cancelled, it only has to have ended.
        ended = external.signal_id is None and directory.runs_of(namespace, workflow_id)
        failure = None if state.closed or ended else _application(NOT_FOUND, message)
        told = inputs.ExternalDone(initiated_event_id=external.initiated_event_id, failure=failure)
        self._once(asked, lambda: self._tell(told))

    def _ask_later(self, key: str) -> None:
        """Ask once more in a moment: the run that is to be asked is about to close, or to be made."""

        def again() -> None:
            self._asked.discard(key)
            self._wake()

        asyncio.get_running_loop().call_later(_SOON_SECONDS, again)

    def _target(self, external: PendingExternal) -> Entry | None:
        directory = self._peers.directory
        if external.child_workflow_only:
            for entry in directory.children_of(self._run.namespace, self._run.uid):
                if entry.workflow_id == external.workflow_id and entry.standing is not Standing.CLOSED:
                    return entry
            return None
        if external.run_id:
            named, meant = directory.get(external.run_id), (self._run.namespace, external.workflow_id)
            return named if named is not None and (named.namespace, named.workflow_id) == meant else None
        return directory.open_run(self._run.namespace, external.workflow_id)

    async def _make_successor(self, state: State, run: api.Object, status: Status) -> None:
        events = history.decode_events(status["history"]["events"][-1:])
        body = successor_run(run, state, events[-1])
        url = api.path(api.PERDURE, self._run.namespace, "workflowruns")
        refused = ""
        try:
            self._peers.noted(await self._client.create(url, body))  # or, until a watch tells, nobody would have the id
        except api.AlreadyExistsError:
            name = body["metadata"]["name"]
            found = await self._client.get(api.path(api.PERDURE, self._run.namespace, "workflowruns", name))
            if not is_successor(found, self._run.uid):
                refused = f"there is a WorkflowRun `{name}` already, which does not continue this one"
            self._peers.noted(found)
        except (api.InvalidError, api.TooLargeError) as error:
            refused = (
                f"the API server refuses WorkflowRun `{body['metadata']['name']}`: {error.message[:LONGEST_MESSAGE]}"
            )
        self._made.add("successor")
        self._tell(inputs.ChoreDone(chore="successor", refused=refused))

    async def _set_aside(self, key: str, marker: ev.MarkerRecorded, run: api.Object, status: Status) -> None:
        """Write the DeadLetter that a marker asks for."""
        if f"marker/{key}" in self._made:
            return
        definition = status.get("definition") or run["spec"].get("inline") or {}
        scheduled = await self._scheduled(marker, {**run, "status": status})
        activities, number = definition.get("activities") or (), 0
        while not await self._write_letter(dead_letter(self._run, marker, scheduled, activities, number)):
            number += 1
            if number == _LETTER_NAMES_TRIED:
                self._log.error("The DeadLetter is lost: others have all its names", event_id=marker.event_id)
                break
        self._made.add(f"marker/{key}")
        self._tell(inputs.ChoreDone(chore=f"marker/{key}"))

    async def _write_letter(self, body: api.Object) -> bool:
        """Write a DeadLetter; whether it exists now. False: another one has its name."""
        url = api.path(api.PERDURE, self._run.namespace, "deadletters")
        try:
            await self._client.create(url, body)
        except api.AlreadyExistsError:
            found = await self._client.get(f"{url}/{body['metadata']['name']}")
            return is_same_letter(found, body)
        metrics.DEAD_LETTERS.inc()
        return True

    async def _scheduled(self, marker: ev.MarkerRecorded, run: api.Object) -> ev.ActivityTaskScheduled | None:
        """The event that scheduled the activity of a marker: in the status, or sealed already."""
        number = (marker.details or {}).get("scheduledEventId", 0)
        found = [event for event in run["status"]["history"]["events"] if event["eventId"] == number]
        if not found:
            found = [event for event in (await past_of(self._client, run)).events if event["eventId"] == number]
        event = history.decode_events(found[:1])[0] if found else None
        return event if isinstance(event, ev.ActivityTaskScheduled) else None

    def _once(self, key: str, do: Callable[[], None]) -> None:
        if key not in self._asked:
            self._asked.add(key)
            do()

    def _tell(self, told: inputs.RunInput, recorded: Callable[[], None] | None = None) -> None:
        self._inputs.append(_Told(told, recorded))
        self._wake()


def _means_chain(external: PendingExternal) -> bool:
    """Whether whichever run of a chain is open is meant; a child is named by its first one, which may have continued as new."""
    return external.child_workflow_only or not external.run_id


def _is_to_be_made(child: PendingChild, state: State) -> bool:
    """Whether the run of a child is to be there, also now that the parent has closed."""
    return child.start is not None and (not state.closed or child.parent_close_policy is ParentClosePolicy.ABANDON)


def _tasks(state: State) -> set[str]:
    """What is to be done."""
    tasks = {_task(key, child, state) for key, child in state.children.items()} - {""}
    tasks |= {f"external/{key}" for key in state.externals}
    tasks |= {f"marker/{key}" for key in state.markers}
    return tasks | ({"successor"} if state.start_successor else set())


def _task(key: str, child: PendingChild, state: State) -> str:
    """What is to be done about a child; empty: nothing."""
    return f"close/{key}" if state.closed else f"child/{key}" if _is_to_be_made(child, state) else ""


def _application(type_: str, message: str) -> Failure:
    return Failure(kind=FailureKind.APPLICATION, type=str(type_), message=message, non_retryable=True)


def failure_in(status: dict[str, Any]) -> Failure | None:
    """The failure of a closed run, as its last event has it."""
    closing = _closing_event(status)
    return ev.failure_of(closing) if closing is not None else None


def _closing_event(status: dict[str, Any]) -> ev.AnyEvent | None:
    """The last event of a closed run; None without its history, or if that cannot be read."""
    events = (status.get("history") or {}).get("events") or []
    try:
        return history.decode_events(events[-1:])[-1] if events else None
    except msgspec.ValidationError:
        return None


def _result(status: dict[str, Any]) -> Any:
    """The result of a closed run, as its last event has it; without its history, as its status has it."""
    events = (status.get("history") or {}).get("events") or [{}]
    return events[-1].get("result", events[-1].get("details", status.get("output")))


def successor_refused(status: dict[str, Any]) -> str:
    """Why the run that was to go on in another one does not; empty where it does, or was not to."""
    return str((status.get("state") or {}).get("successorRefused", ""))


def has_successor(status: dict[str, Any]) -> bool:
    """Whether the run goes on in another one."""
    events = (status.get("history") or {}).get("events") or [{}]
    return not successor_refused(status) and bool(events[-1].get("newWorkflowRun") or events[-1].get("resetRun"))
