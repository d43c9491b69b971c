"""Resets: create a new run that starts with a part of another run's history.

    reset(…) ─▶ WorkflowRun `<run>-reset-<hash>`, with its origin in an annotation                (requested by an Operation)
                   │ its own first reconciliation
                   ▼
    fork the history ─▶ close the open run of the workflow ID ─▶ take over its children ─▶ write the segments ─▶ commit

The name of the new run is a lock that contains the request's ID. So there is one new run, even if the request is repeated or an
operator is killed. The rest concerns only that run, and the next operator finds each finished step of its start.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import msgspec

from perdure.api.kinds import operation
from perdure.api.kinds.workflowrun import WorkflowRunSpec
from perdure.api.names import reset_name, successor_name
from perdure.api.phases import kind_of
from perdure.api.policies import ResetPoint
from perdure.api.reasons import ConditionReason
from perdure.controller.errors import NotReadyError, RefusedError
from perdure.controller.pods.workspaces import WorkspaceVolumes
from perdure.controller.reconcile.newer_states import NewerStateError, message_for
from perdure.controller.recorded_state import stored_state
from perdure.controller.runs.deciders import scope_of
from perdure.controller.runs.store import past_of
from perdure.controller.state_versions import state_versions
from perdure.controller.workflows.definitions import Definition, Definitions, read_spec
from perdure.engine import events as ev
from perdure.engine import history, inputs, resets
from perdure.engine.commands import UndecidableError
from perdure.engine.history import NondeterminismError
from perdure.engine.resets import Restarted
from perdure.engine.state import PendingChild, RunState
from perdure.engine.versioning import VersioningOverride
from perdure.kube import client as kube
from perdure.language.interpreter import Interpreter
from perdure.language.program import InvalidWorkflowError, with_defaults
from perdure.language.resets import RetryPlan, before_services, last_task, plan_retry
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import Ancestor, ResetOrigin, continuation_of, is_successor, reset_of, reset_run
from perdure.runtime.commits import OF_RUNS, edited
from perdure.runtime.pods.workspaces import WorkspaceUse, lost_files, needed_files

_NOTHING_DECIDED = "the run has not started, so there is nothing to reset or retry"


@dataclass(frozen=True, slots=True)
class NewRun:
    """The result of a reset: the new run."""

    name: str
    run_id: str
    event_id: int
    """The last event that the new run takes over."""
    kept: int = 0
    """The number of later results that it keeps."""
    left_out: int = 0
    """The number of further results that are too large to keep; known only at the creation of the run."""
    object: kube.Object = field(compare=False, repr=False, kw_only=True)
    """The new run as it was created or read."""


async def reset(
    client: kube.Client,
    definitions: Definitions,
    run: kube.Object,
    wanted: operation.Reset | operation.Retry,
    *,
    request_id: str,
    overrides: tuple[VersioningOverride | None, ...] = (),
    identity: str = "",
    principal: str = "",
) -> NewRun:
    """Create the run of a reset or a retry, unless it exists. The run that is reset closes when the new one starts.

    Args:
        client: The client of the API server.
        definitions: Finds and compiles definitions.
        run: The WorkflowRun to reset; open or closed.
        wanted: The parameters of the reset or retry.
        request_id: UID of the Operation that requests it.
        overrides: The changes of the versioning override of the new run; None removes it.
        identity: The caller's own name for itself.
        principal: The user that the API server authenticated; empty if unknown.

    Raises:
        RefusedError: The run cannot be reset to this point, or files that the new run needs are gone.
        NotYetError: The definition of the run is being compiled.
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    meta = run["metadata"]
    kind = kind_of(run["spec"])
    if kind.standalone:
        message = f"a standalone {kind.noun} cannot be reset; start the {kind.noun} again"
        raise RefusedError(ConditionReason.NOT_SUPPORTED, message)
    name = name_of(meta["name"], wanted, request_id)
    url = kube.path(kube.PERDURE, meta["namespace"], "workflowruns", name)
    with suppress(kube.NotFoundError):
        return _new_run(await client.get(url), request_id)
    try:
        events = _decoded(await _all_events(client, run))
        if isinstance(wanted, operation.Retry):
            found = await _redo(definitions, run, events, wanted)
        else:
            found = RetryPlan(point=await _point(definitions, run, events, wanted))
        state, definition = await _fork(definitions, run, events, found.point)
        use = await workspace_use(definitions, run, definition, state, events)
        await check_files(client, run, use, events[: found.point], events[found.point :], found.kept)
    except NewerStateError as error:
        raise RefusedError(ConditionReason.NEWER_STATE, message_for(str(error))) from error
    point = found.point
    before = reset_of(run)
    origin = ResetOrigin(
        request_id=request_id,
        lineage=(
            *(before.lineage if before else ()),
            Ancestor(name=meta["name"], run_id=meta["uid"], event_id=point),
        ),
        reapply_signals=wanted.reapply_signals,
        reapply_updates=isinstance(wanted, operation.Reset) and wanted.reapply_updates,
        kept=found.kept,
        repeated=found.repeated,
        overrides=overrides,
        reason=wanted.reason,
        identity=identity,
        principal=principal,
    )
    try:
        new = await client.create(
            kube.path(kube.PERDURE, meta["namespace"], "workflowruns"), reset_run(run, origin, name)
        )
    except kube.AlreadyExistsError:
        new = await client.get(url)
    return replace(_new_run(new, request_id), left_out=found.left_out)


def name_of(run: str, wanted: operation.Reset | operation.Retry, request_id: str) -> str:
    """The name of the run that a reset or a retry creates.

    Args:
        run: Name of the run that is reset or retried.
        wanted: The reset or the retry.
        request_id: UID of the Operation that requests it.
    """
    return reset_name(run, request_id, "retry" if isinstance(wanted, operation.Retry) else "reset")


def _new_run(found: kube.Object, request_id: str) -> NewRun:
    origin, meta = reset_of(found), found["metadata"]
    if origin is None or origin.request_id != request_id:
        message = f"WorkflowRun `{meta['name']}` already exists and was not created by this reset; delete it"
        raise RefusedError(ConditionReason.WORKFLOW_ID_IN_USE, message)
    return NewRun(meta["name"], meta["uid"], origin.base.event_id, len(origin.kept), object=found)


async def _redo(
    definitions: Definitions, base: kube.Object, events: Sequence[ev.AnyEvent], wanted: operation.Retry
) -> RetryPlan:
    """The steps that a retry repeats.

    Raises:
        RefusedError: The run is open or has continued, workers decide it, or there is nothing to repeat.
    """
    name, first, last = base["metadata"]["name"], events[0], events[-1]
    reason = ConditionReason.RESET_POINT_NOT_FOUND
    if not (base.get("status") or {}).get("completionTime"):
        message = f"`{name}` is still open; wait until it has closed, cancel it, or reset it"
        raise RefusedError(ConditionReason.WORKFLOW_ID_IN_USE, message)
    if _is_code(events):
        raise RefusedError(reason, f"SDK workers run `{name}`, so single steps cannot be retried; reset it instead")
    if following := getattr(last, "new_workflow_run", ""):
        raise RefusedError(reason, f"`{name}` continues as `{following}`; retry that run")
    state = stored_state(base)
    if state is not None and state.ended_undecided:
        raise RefusedError(
            reason, f"`{name}` ended before its first step, so there is nothing to keep; start a new run"
        )
    spec, difference = _spec_of(base), "its definition no longer exists"
    assert isinstance(first, ev.WorkflowExecutionStarted)
    async for definition in _definitions(definitions, base, spec):
        try:
            return await asyncio.to_thread(
                plan_retry,
                events,
                definition.program,
                scope_of(base),
                input=with_defaults(definition.program, spec.input),
                start_time=first.event_time,
                steps=wanted.from_,
            )
        except ValueError as error:
            raise RefusedError(reason, str(error)) from error
        except (NondeterminismError, UndecidableError) as error:
            difference = str(error)
    raise RefusedError(reason, f"the definition of `{name}` does not reproduce its history: {difference}")


async def _point(
    definitions: Definitions, run: kube.Object, events: Sequence[ev.AnyEvent], wanted: operation.Reset
) -> int:
    points = history.task_starts(events) if _is_code(events) else history.decision_points(events)
    if not points:
        raise RefusedError(ConditionReason.RESET_POINT_NOT_FOUND, _NOTHING_DECIDED)
    if wanted.event_id is not None and not _is_code(events):
        allowed = before_services(events, points, wanted.event_id)
        if allowed != wanted.event_id:
            message = (
                f"services of steps run at event {wanted.event_id}, and what the steps have stored in them is lost; choose "
                f"event {allowed}, or an earlier one"
            )
            raise RefusedError(ConditionReason.RESET_POINT_NOT_FOUND, message)
    if wanted.event_id is not None:
        # The scheduling of a task counts as its start, as on Temporal's server (service/history/ndc/workflow_resetter.go).
        return wanted.event_id + _schedules_task(events, wanted.event_id)
    if wanted.to is ResetPoint.FIRST_WORKFLOW_TASK:
        return points[0]
    if _is_code(events):
        return points[-1]
    return before_services(events, points, await _last_task(definitions, run, events) or points[-1])


async def _last_task(definitions: Definitions, base: kube.Object, events: Sequence[ev.AnyEvent]) -> int | None:
    """The latest decision from which a YAML run can end differently; None if no definition reproduces its history."""
    first, spec = events[0], _spec_of(base)
    assert isinstance(first, ev.WorkflowExecutionStarted)
    async for definition in _definitions(definitions, base, spec):
        values = with_defaults(definition.program, spec.input)
        with suppress(NondeterminismError, UndecidableError):
            return await asyncio.to_thread(
                last_task, events, definition.program, scope_of(base), input=values, start_time=first.event_time
            )
    return None


def _schedules_task(events: Sequence[ev.AnyEvent], event_id: int) -> bool:
    """Whether an event schedules a workflow task, and the next event starts it."""
    pair = [type(event) for event in events[event_id - 1 : event_id + 1]]
    return pair == [ev.WorkflowTaskScheduled, ev.WorkflowTaskStarted]


def _is_code(events: Sequence[ev.AnyEvent]) -> bool:
    """Whether workers decide a run, according to its first event."""
    return isinstance(events[0], ev.WorkflowExecutionStarted) and bool(events[0].task_queue)


async def _all_events(client: kube.Client, run: kube.Object) -> list[dict[str, Any]]:
    """Read all events of a run.

    Raises:
        RefusedError: The run has no events yet, some are missing, or its status was edited.
        NewerStateError: A newer version has written the run.
    """
    if why := state_versions().unreadable(run.get("status") or {}):
        raise NewerStateError(why)
    if wrong := edited(run.get("status") or {}, OF_RUNS):
        raise RefusedError(
            ConditionReason.STATE_DAMAGED, f"the state of `{run['metadata']['name']}` is damaged: {wrong}"
        )
    past = await past_of(client, run)
    if past.damage:
        message = f"the history of `{run['metadata']['name']}` is incomplete: {past.damage[0].message}"
        raise RefusedError(past.damage[0].reason, message)
    if not past.events:
        raise RefusedError(ConditionReason.RESET_POINT_NOT_FOUND, _NOTHING_DECIDED)
    stored_state(run)
    return past.events


def _decoded(events: list[dict[str, Any]]) -> tuple[ev.AnyEvent, ...]:
    """Decode the intact history of a run.

    Raises:
        NewerStateError: A newer version has written it.
    """
    try:
        return history.decode_events(events)
    except msgspec.ValidationError as error:
        raise NewerStateError(f"its history: {error}") from error


# The start of the new run


@dataclass(frozen=True, slots=True)
class Fork:
    """The start of a run that continues another one's history."""

    base: kube.Object
    """The object of the run that was reset."""
    events: list[dict[str, Any]]
    """The events to take over, in stored form."""
    before: tuple[ev.AnyEvent, ...]
    """The events to take over."""
    later: tuple[ev.AnyEvent, ...]
    """The events after the point."""
    state: RunState
    """The state at the point."""
    definition: Definition | None
    """The definition; None if workers decide."""
    restarted: Restarted
    """The open children and Nexus operations that start again."""

    @property
    def final(self) -> bool:
        """Whether the other run has closed, so that its history is final."""
        return bool((self.base.get("status") or {}).get("completionTime"))

    @property
    def requests(self) -> tuple[str, ...]:
        """IDs of requests that the other run has processed, but whose senders may not have the answer yet."""
        return tuple(((self.base.get("status") or {}).get("state") or {}).get("requests") or ())

    def event(self, run: RunRef, origin: ResetOrigin, now: datetime) -> ev.WorkflowTaskFailed:
        """The event that records the reset."""
        first = history.decode_events(self.events[:1])[0]
        assert isinstance(first, ev.WorkflowExecutionStarted)
        point = history.decode_events(self.events[-1:])[0]
        return resets.reset_event(
            first,
            self.state.next_event_id,
            now,
            base_run_id=origin.base.run_id,
            new_run_id=run.uid,
            successor=successor_name(run.name, run.uid),
            task=point if isinstance(point, ev.WorkflowTaskStarted) else None,
            restarted=self.restarted,
            reason=origin.reason,
            identity=origin.identity,
            principal=origin.principal,
        )


async def fork_of(client: kube.Client, definitions: Definitions, run: kube.Object, origin: ResetOrigin) -> Fork:
    """The starting point of a run that a reset has created.

    Raises:
        RefusedError: The original history is missing, or no definition reproduces it anymore.
        NewerStateError: A newer version has written the original run.
        NotYetError: The definition of the run is being compiled.
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    wanted, base = origin.base, None
    with suppress(kube.NotFoundError):
        base = await client.get(kube.path(kube.PERDURE, run["metadata"]["namespace"], "workflowruns", wanted.name))
    if base is None or base["metadata"]["uid"] != wanted.run_id:
        raise _deleted(wanted)
    raw = await _all_events(client, base)
    events = _decoded(raw)
    state, definition = await _fork(definitions, base, events, wanted.event_id)
    before, later = events[: wanted.event_id], events[wanted.event_id :]
    restarted = resets.restarted(state, before, later, lambda: str(uuid.uuid4()), origin.repeated)
    return Fork(base, raw[: wanted.event_id], before, later, state, definition, restarted)


async def check_exists(client: kube.Client, namespace: str, base: Ancestor) -> None:
    """Check that the run that was reset still exists, after the new run has become an owner of what it needs.

    When a run is deleted, the garbage collector deletes what it alone owns, such as the claims of its workspaces and its
    large payloads. The new run must not start without them.

    Raises:
        RefusedError: The run was deleted.
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    try:
        meta = (await client.metadata(kube.path(kube.PERDURE, namespace, "workflowruns", base.name)))["metadata"]
    except kube.NotFoundError:
        raise _deleted(base) from None
    if meta["uid"] != base.run_id or meta.get("deletionTimestamp"):
        raise _deleted(base)


async def workspace_use(
    definitions: Definitions,
    base: kube.Object,
    definition: Definition | None,
    state: RunState,
    events: Sequence[ev.AnyEvent],
) -> WorkspaceUse:
    """Find which activities of a run that is reset mount which workspaces.

    Args:
        definitions: Finds the definitions of activities that code has scheduled.
        base: The run that is reset.
        definition: The definition of the new run; None if workers decide it.
        state: The state of the new run at the point.
        events: The history of the run that is reset.

    Raises:
        NotYetError: A definition is being compiled.
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    version = state.code.versioning.pinned_to if state.code is not None else None
    return await definitions.workspace_use(base["metadata"]["namespace"], definition, events, version)


async def check_files(
    client: kube.Client,
    base: kube.Object,
    use: WorkspaceUse,
    before: Sequence[ev.AnyEvent],
    later: Sequence[ev.AnyEvent],
    kept: Collection[int],
) -> None:
    """Check that the volumes still have the files of kept steps that the steps to repeat can read.

    Args:
        client: Reads the claims.
        base: The run that is reset.
        use: Which activities mount which workspaces.
        before: The events that the new run takes over.
        later: The later events of the run that is reset.
        kept: IDs of later completions whose results are kept.

    Raises:
        RefusedError: A claim is gone.
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    if not use.workspaces:
        return
    needed = needed_files(before, later, kept, use.activities)
    meta = base["metadata"]
    ref = RunRef(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"], workflow_id="")
    mounted = [each for name, each in use.workspaces.items() if name in needed]
    for workspace in await WorkspaceVolumes(client, ref, reset_of(base)).lost(mounted):
        message = f"{lost_files(workspace, needed[workspace])}; retry the run and name it in `from`, or start a new run"
        raise RefusedError(ConditionReason.WORKSPACE_LOST, message)


def _deleted(base: Ancestor) -> RefusedError:
    message = f"WorkflowRun `{base.name}` was deleted before it could be reset"
    return RefusedError(ConditionReason.TARGET_NOT_FOUND, message)


async def _fork(
    definitions: Definitions, base: kube.Object, events: Sequence[ev.AnyEvent], point: int
) -> tuple[RunState, Definition | None]:
    """The state at a point of a history, with the current Workflow if it makes the same decisions up to that point.

    Otherwise, use the definition that the run was pinned to. Workers check themselves whether code makes the same decisions.

    Raises:
        RefusedError: The point is not a decision, or neither definition makes the same decisions.
    """
    first, spec = events[0], _spec_of(base)
    assert isinstance(first, ev.WorkflowExecutionStarted)
    if _is_code(events):
        try:
            return history.fork_of_code(events, point), None
        except ValueError as error:
            raise RefusedError(ConditionReason.RESET_POINT_NOT_FOUND, str(error)) from error
    difference = "its definition no longer exists"
    async for definition in _definitions(definitions, base, spec):
        decider = Interpreter(
            definition.program,
            scope_of(base),
            input=with_defaults(definition.program, spec.input),
            start_time=first.event_time,
        )
        try:
            # A long history takes seconds, so let other tasks run in between.
            return await asyncio.to_thread(history.fork, events, point, decider), definition
        except ValueError as error:
            raise RefusedError(ConditionReason.RESET_POINT_NOT_FOUND, str(error)) from error
        except (NondeterminismError, UndecidableError) as error:
            difference = str(error)
    message = f"the workflow no longer reproduces the history before event {point}: {difference}"
    raise RefusedError(ConditionReason.RESET_POINT_NOT_FOUND, message)


def _spec_of(base: kube.Object) -> WorkflowRunSpec:
    try:
        return read_spec(base["spec"])
    except InvalidWorkflowError as error:
        message = f"the spec of `{base['metadata']['name']}` cannot be read: {error}"
        raise RefusedError(ConditionReason.INVALID_SPEC, message) from error


async def _definitions(definitions: Definitions, base: kube.Object, spec: WorkflowRunSpec) -> AsyncIterator[Definition]:
    """The definitions to try, the best first."""
    meta = base["metadata"]
    with suppress(NotReadyError, InvalidWorkflowError):
        yield await definitions.find(meta["namespace"], meta["name"], spec, base["spec"].get("inline"))
    with suppress(InvalidWorkflowError):
        yield await definitions.pinned(
            meta["namespace"], meta["name"], spec, base["spec"].get("inline"), base.get("status")
        )


async def since_fork(client: kube.Client, fork: Fork, origin: ResetOrigin) -> list[inputs.RunInput]:
    """Later events to apply again, including the signals and updates of the following runs, as on Temporal's server.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    signals, updates = origin.reapply_signals, origin.reapply_updates
    reapplied = list(
        resets.since(
            fork.state,
            fork.later,
            origin.base.run_id,
            signals=signals,
            updates=updates,
            restarted=fork.restarted,
        )
    )
    run, closing = fork.base, fork.later[-1] if fork.later else None
    while (signals or updates) and isinstance(closing, ev.WorkflowExecutionContinuedAsNew):
        meta = run["metadata"]
        url = kube.path(kube.PERDURE, meta["namespace"], "workflowruns", closing.new_workflow_run)
        try:
            following = await client.get(url)
        except kube.NotFoundError:
            break
        if not is_successor(following, meta["uid"]):
            break
        events = _decoded((await past_of(client, following)).events)
        reapplied += _received_by(following, events, signals=signals, updates=updates)
        run, closing = following, events[-1] if events else None
    for number, override in enumerate(origin.overrides):
        request_id = f"{origin.request_id}:{number}"
        reapplied.append(inputs.OverrideChanged(request_id=request_id, override=override, principal=origin.principal))
    return reapplied


def _received_by(
    run: kube.Object, events: Sequence[ev.AnyEvent], *, signals: bool, updates: bool
) -> Iterator[inputs.RunInput]:
    """The signals and updates of a following run, without the signals that it started with."""
    before = continuation_of(run)
    carried = len(before.signals) if before else 0
    for event in events:
        match event:
            case ev.WorkflowExecutionSignaled():
                carried -= 1
                if signals and carried < 0:
                    yield resets.reapply_signal(event, run["metadata"]["uid"])
            case ev.WorkflowExecutionUpdateAdmitted() | ev.WorkflowExecutionUpdateAccepted() if updates and event.name:
                yield resets.reapply_update(event)
            case _:
                pass


def open_children(fork: Fork, reapplied: Sequence[inputs.RunInput]) -> Iterator[PendingChild]:
    """The children at the point whose outcome is not known yet, except for those that start again."""
    ended = {
        each.initiated_event_id for each in reapplied if isinstance(each, inputs.ChildClosed | inputs.ChildStartFailed)
    }
    return (
        child
        for key, child in fork.state.children.items()
        if key not in fork.restarted.children and child.initiated_event_id not in ended
    )
