"""The start of a run: with its first event, or with the history of another run.

A run may start once no other run of its workflow ID is open, no container of the previous one runs, and it holds its limits. The
start is recorded together with the first decision, if that is made soon: until then, the object itself is the durable start, and
a process that finds it without a status starts it again. So one write records the start together with the first decision of an
SDK worker or a signal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from perdure.api.kinds.workflowrun import WorkflowRunSpec
from perdure.api.names import label_value, successor_name
from perdure.api.policies import WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from perdure.api.reasons import ConditionReason
from perdure.api.search_attributes import search_marks
from perdure.controller.directory import Entry, IdInUse, Standing, Wait, entry_of
from perdure.controller.errors import NotReadyError, NotYetError, RefusedError
from perdure.controller.fleet.shards import Shards
from perdure.controller.payloads import add_owner
from perdure.controller.pods.attempt_pods import stopping
from perdure.controller.pods.workspaces import WorkspaceVolumes
from perdure.controller.reconcile.newer_states import NewerStateError
from perdure.controller.reconcile.reconciler import Inbox, PendingRequest
from perdure.controller.reconcile.record import Record
from perdure.controller.runs.deciders import Idle, Pointer, RunDecider, RunDeciders
from perdure.controller.runs.effects import relations
from perdure.controller.runs.effects.context import EffectContext
from perdure.controller.runs.limits import ReplacedError, RunLimits
from perdure.controller.runs.resets import check_exists, check_files, fork_of, open_children, since_fork, workspace_use
from perdure.controller.runs.store import ForeignSegmentError, Origin, RunStore
from perdure.controller.services import ALREADY_STARTED, Peers, Services
from perdure.controller.workers import Workers
from perdure.controller.workflows.definitions import (
    Definition,
    check_options,
    newer_definition,
    read_spec,
    without_invalid_attributes,
)
from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs
from perdure.engine.commands import Decider
from perdure.engine.cron import next_due
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.ledger import policy_named, resolved
from perdure.engine.payloads import referred_to
from perdure.engine.resets import begin, kept_results
from perdure.engine.retry import PolicyReference, RetryPolicy
from perdure.engine.starts import ParentReference, StartExtras
from perdure.engine.state import task_timeout
from perdure.engine.step import RunTransition, start, step
from perdure.kube import client as kube
from perdure.language.defaults import run_marks, with_run_defaults
from perdure.language.interpreter import Refuser
from perdure.language.program import InvalidWorkflowError, Program, retry_policy, with_defaults
from perdure.runtime import segments
from perdure.runtime.attempts import RunRef
from perdure.runtime.blobs import owner_of
from perdure.runtime.chains import Continuation, Parent, ResetOrigin, continuation_of, created_by, extras_of, parent_of
from perdure.runtime.operation_requests import start_signal_of
from perdure.schedule.run_manifests import ScheduledBy, scheduled_by

INVALID_INPUT = ConditionReason.INVALID_INPUT.value
"""Failure type of a run whose input does not match the schema of its Workflow."""
ENDS = (inputs.TerminateRequested, inputs.CancelRequested)
"""Requests that end a run that cannot start yet."""
_PAUSES = (inputs.PauseRequested, inputs.UnpauseRequested)
_EMPTY_SPEC = WorkflowRunSpec.model_construct()
"""The spec of a run whose own spec is invalid: it starts only to fail."""
MAX_UNRECORDED: Final = timedelta(seconds=1)
"""How long the start of a run may stay unrecorded."""
_SECOND = timedelta(seconds=1)
_PODS_AGAIN: Final = _SECOND
"""Delay before the pods of the previous run are read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStart(RunDecider):
    """The start of a run, before the transition is committed."""

    transition: RunTransition
    origin: Origin | None = None
    """The starting point in the history of another run, if it takes one over."""
    requests: Sequence[PendingRequest[inputs.Request]] = ()
    """The requests in the transition."""


@dataclass(slots=True)
class _Draft:
    """The start of a run that is being prepared."""

    workflow_type: str
    spec: WorkflowRunSpec = _EMPTY_SPEC
    decider: Decider | None = None
    definition: Definition | None = None
    input: Any = None
    policy: RetryPolicy | None = None
    extras: StartExtras | None = None
    ended_by: Sequence[inputs.CancelRequested] = ()
    """What ends the run before it starts, apart from the requests to it."""


class RunStarter:
    """Begins one run."""

    def __init__(
        self,
        services: Services,
        context: EffectContext,
        store: RunStore,
        inbox: Inbox[inputs.Request],
        deciders: RunDeciders,
    ) -> None:
        """Create it without reading.

        Args:
            services: The shared services.
            context: The run, and the other runs.
            store: The stored state of the run.
            inbox: The requests to the run.
            deciders: Finds the decider of the run.
        """
        self._services = services
        self._context = context
        self._run = context.run
        self._store = store
        self._record = store.record
        self._inbox = inbox
        self._deciders = deciders
        self._limits = RunLimits(services, context, store.record)

    async def begin(self, now: datetime) -> RunStart:
        """Start the run. An invalid run starts and fails.

        Raises:
            NotReadyError: It cannot begin yet, and no request ends it.
            NotYetError: Its definition is being compiled, and no request terminates it.
            NewerStateError: Its spec, or the run that it continues by a reset, is of a newer version.
            ConflictError: Another client has written to it.
        """
        draft = _Draft(self._run.name)
        try:
            draft.spec = read_spec(self._record.object["spec"])
            if self._context.reset is not None:
                return await self._begin_from(self._context.reset, draft.spec, now)
            await self._complete(draft, now)
        except NotReadyError:
            if not self._inbox.has(*ENDS):
                raise
            draft.decider = Idle()
        except ReplacedError as error:
            draft.decider, draft.ended_by = Idle(), (error.request,)
        except NotYetError:
            # A cancellation waits for the definition: whether handlers run must not depend on how long compiling takes.
            if not self._inbox.has(inputs.TerminateRequested):
                raise
            draft.decider = Idle()
        except InvalidWorkflowError as error:
            inline = self._record.object["spec"].get("inline")
            if inline is not None and (why := newer_definition(inline, "spec.inline")):
                raise NewerStateError(why) from error
            draft.decider, draft.spec = Refuser(str(error), error.type), without_invalid_attributes(draft.spec)
        except RefusedError as error:
            draft.decider = Refuser(error.message, error.reason.value)
        return await self._first_transition(draft, now)

    async def _complete(self, draft: _Draft, now: datetime) -> None:
        """Complete the draft.

        Raises:
            NotReadyError, NotYetError: The run cannot begin yet.
            InvalidWorkflowError: The run is not valid.
            ConflictError: Another client has written the run.
        """
        spec = draft.spec
        check_options(spec)
        draft.decider = await self._claim(spec)
        if draft.decider is not None:
            return
        standalone = self._deciders.standalone(spec)
        if standalone is not None:
            draft.decider, draft.extras = standalone, extras_of(self._record.object)
            if isinstance(standalone.work, cmd.ScheduleActivityTask):
                draft.workflow_type = standalone.work.activity_type
                used = policy_named(standalone.work)
                await self._find_policies(spec, frozenset({used} if used else ()))
            else:
                draft.workflow_type = standalone.work.operation
            return
        if spec.workflow is not None and spec.workflow.type is not None:
            draft.workflow_type, draft.input = spec.workflow.type, spec.input
            draft.extras = await self._extras(spec.workflow.task_queue or "")
            draft.policy = await self._find_policies(spec, frozenset())
            return
        definition, draft.input = await self._find_definition(spec)
        draft.workflow_type = definition.workflow_type
        spec = draft.spec = with_run_defaults(spec, definition.defaults)
        draft.policy = await self._find_policies(spec, definition.program.retry_policies)
        await self._await_pods(definition.program, now)
        await self._limits.acquire(definition.program, draft.input, spec, now)
        definition = await self._services.definitions.keep(self._run.namespace, definition)
        draft.decider, draft.definition = self._deciders.interpreter(definition, spec, now), definition
        await self._record.mark(*run_marks(self._record.object, definition.defaults))

    async def _extras(self, task_queue: str) -> StartExtras:
        """The fields in annotations, without inherited versions whose workers do not poll the task queue."""
        extras = extras_of(self._record.object)
        if continuation_of(self._record.object) is None and parent_of(self._record.object) is None:
            return extras
        for field, version in extras.inherited_versions().items():
            if not await self._services.workers.has_task_queue(self._run.namespace, task_queue, version):
                extras = msgspec.structs.replace(extras, **{field: None})
        return extras

    async def _first_transition(self, draft: _Draft, now: datetime) -> RunStart:
        continues = continuation_of(self._record.object)
        first = first_event(
            self._run,
            draft.spec,
            draft.workflow_type,
            draft.input,
            now,
            policy=draft.policy,
            parent=parent_of(self._record.object),
            continues=continues,
            extras=draft.extras,
            schedule=scheduled_by(self._record.object),
            principal=created_by(self._record.object),
        )
        idle = isinstance(draft.decider, Idle)
        # A run that is refused has received nothing: the sender of the signal gets an error, or tries another run.
        refused = isinstance(draft.decider, Refuser | Pointer)
        # A run that only starts to end waits for nothing: neither `startDelay` nor `startPaused` keeps it open.
        ends = idle or refused
        first = msgspec.structs.replace(first, first_workflow_task_backoff=None) if ends else first
        if draft.spec.search_attributes:
            await self._record.mark(*search_marks(draft.spec.search_attributes))
        began_for = start_signal_of(self._record.object)
        transition = start(
            first,
            draft.decider or Idle(),
            continues.signals if continues else (),
            applied=continues.applied if continues else (),
            requests=() if began_for is None or refused else (began_for.request,),
            paused=draft.spec.start_paused and continues is None and not ends,
            policies=self._services.policies.of(self._run.namespace),
        )
        requests = [each for each in self._inbox if idle and not isinstance(each.request, _PAUSES)]
        if requests or draft.ended_by:
            ending = [*(each.request for each in requests), *draft.ended_by]
            ended = step(transition.state, ending, now, Idle())
            transition = replace(ended, events=(*transition.events, *ended.events))
        return RunStart(decider=draft.decider, definition=draft.definition, transition=transition, requests=requests)

    async def _find_definition(self, spec: WorkflowRunSpec) -> tuple[Definition, Any]:
        """The definition that the run is pinned to when it starts now, and its input with defaults.

        Raises:
            NotYetError: The definition is being compiled.
            NotReadyError: The Workflow is missing or invalid.
            InvalidWorkflowError: The run is not valid.
        """
        inline = self._record.object["spec"].get("inline")
        definition = await self._services.definitions.find(self._run.namespace, self._run.name, spec, inline)
        values = with_defaults(definition.program, spec.input)
        wrong = definition.program.check_input(values)
        if wrong:
            raise InvalidWorkflowError(wrong, INVALID_INPUT)
        return definition, values

    async def _find_policies(self, spec: WorkflowRunSpec, used: frozenset[str]) -> RetryPolicy | None:
        """Check that the RetryPolicies of the run and its definition exist; return the policy of the run.

        Raises:
            NotReadyError: A RetryPolicy is missing or invalid.
        """
        chosen = retry_policy(spec.retry_policy) if spec.retry_policy else None
        of_run = {chosen.name} if isinstance(chosen, PolicyReference) else set()
        namespace = self._run.namespace
        missing = await self._services.policies.missing(namespace, used | of_run)
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            message = f"there is no valid RetryPolicy {names} in namespace `{namespace}`"
            raise NotReadyError(ConditionReason.RETRY_POLICY_NOT_FOUND, f"{message}; the run starts once there is one")
        return None if chosen is None else resolved(chosen, self._services.policies.of(namespace))

    # From another run's history

    async def _begin_from(self, reset: ResetOrigin, spec: WorkflowRunSpec, now: datetime) -> RunStart:
        """Start with the history of another run, up to a point.

        All steps before the commit are found again after a crash: the other run is closed, its children belong to this run, and
        the segments have the same names and events.

        Raises:
            RefusedError: The history cannot be continued from this point, or files that the run needs are gone.
            NotReadyError: The other runs of the workflow ID must close first.
        """
        client, definitions = self._services.client, self._services.definitions
        fork = await fork_of(client, definitions, self._record.object, reset)  # before another run is stopped
        await self._claim(spec)
        if not fork.final:
            fork = await fork_of(client, definitions, self._record.object, reset)
        if not fork.final:
            raise NotReadyError(ConditionReason.WORKFLOW_ID_IN_USE, f"`{reset.base.name}` must close first")
        if fork.definition is not None:
            values = with_defaults(fork.definition.program, spec.input)
            await self._await_pods(fork.definition.program, now)
            await self._limits.acquire(fork.definition.program, values, spec, now, fork.state.holds.values())
            fork = replace(fork, definition=await definitions.keep(self._run.namespace, fork.definition))
        reapplied = await since_fork(client, fork, reset)
        decider = self._deciders.interpreter(fork.definition, spec, fork.state.start_time) if fork.definition else None
        use = await workspace_use(definitions, fork.base, fork.definition, fork.state, (*fork.before, *fork.later))
        await WorkspaceVolumes(client, self._run, reset).take_over(use.workspaces.values())
        sealed, past = segments.chain(self._run, fork.events)
        events = msgspec.json.encode(fork.events)
        await self._store.artifacts.hold(events)
        for name in referred_to(events):
            await add_owner(client, self._run.namespace, name, owner_of(self._record.object))
        await check_exists(client, self._run.namespace, reset.base)
        await check_files(client, fork.base, use, fork.before, fork.later, reset.kept)
        await relations.take_over(self._context, reset.base, open_children(fork, reapplied))
        try:
            await self._store.segments.put(sealed)
        except ForeignSegmentError as error:
            raise RefusedError(ConditionReason.SEGMENT_CHANGED, str(error)) from error
        if spec.search_attributes:
            await self._record.mark(*search_marks(spec.search_attributes))
        event = fork.event(self._run, reset, now)
        policies = self._services.policies.of(self._run.namespace)
        kept = kept_results(fork.state, fork.later, reset.kept)
        transition = begin(fork.state, event, reapplied, decider or Idle(), fork.requests, policies=policies, kept=kept)
        before = {**self._record.status, "history": {**past, "nextEventId": event.event_id}}
        origin = Origin(before, fork.state)
        return RunStart(decider=decider, definition=fork.definition, transition=transition, origin=origin)

    async def _await_pods(self, program: Program, now: datetime) -> None:
        """Wait until no container of the previous run of the workflow ID runs, except those whose activities permit it.

        Raises:
            NotReadyError: A container may still run: its pod has its grace period.
        """
        previous = self._context.peers.directory.stopped_before(entry_of(self._record.object))
        alone = [each for each in program.activities.values() if not each.may_overlap]
        if previous is None or not alone:
            return
        spared = {label_value(each.name) for each in program.activities.values() if each.may_overlap}
        pod = await self._services.pods.running(self._run.namespace, previous.uid, now, spared)
        if pod is not None:
            message = f"pod {pod['metadata']['name']} of `{previous.name}`, the previous run of the workflow ID, {stopping(pod)}"
            raise NotReadyError(ConditionReason.WORKFLOW_ID_IN_USE, message, until=now + _PODS_AGAIN)

    async def _claim(self, spec: WorkflowRunSpec) -> Decider | None:
        """Claim the workflow ID. Return the decider of the run if another run of the ID is open; None if no other run is.

        Raises:
            NotReadyError: The run must wait for another run.
            ConflictError: The run no longer waits.
        """
        if decides(self._services.shards, self._run):
            await self._context.peers.catch_up(self._run.namespace)
        directory = self._context.peers.directory
        entry = directory.get(self._run.uid) or entry_of(self._record.object)
        other = directory.open_run(entry.namespace, entry.workflow_id, kind=entry.kind)
        if other is not None and other.standing is Standing.OPEN and other.uid != self._run.uid:
            await self._record.confirm(afresh=True)  # only a run that waits now may stop another one
        return claim(self._context.peers, entry, spec, self._context.reset)


# The workflow ID


def claim(peers: Peers, entry: Entry, spec: WorkflowRunSpec, reset: ResetOrigin | None) -> Decider | None:
    """Ensure that no other run of the workflow ID is open. Return the decider of the run if another one is, otherwise None.

    The run of a reset replaces the open run.

    Args:
        peers: The other runs. One that must make room gets a request.
        entry: The run to start.
        spec: Its spec.
        reset: The reset that created it, if one did.

    Raises:
        NotReadyError: The run must wait for another run.
    """
    reuse, conflict = spec.workflow_id_reuse_policy, spec.workflow_id_conflict_policy
    if reset is not None:
        reuse, conflict = WorkflowIdReusePolicy.ALLOW_DUPLICATE, WorkflowIdConflictPolicy.TERMINATE_EXISTING
    others = peers.directory.sharing(entry)
    match peers.directory.claims.claim(entry, others, reuse=reuse, conflict=conflict):
        case IdInUse(other, message, use_existing):
            return Pointer(other.name, other.uid) if use_existing else Refuser(message, ALREADY_STARTED)
        case Wait(other, terminate):
            if terminate:
                peers.send(other, _makes_room(entry, other, reset), lambda _: None)
            else:
                peers.record_start(other)
            message = f"waits for `{other.name}`, which has {entry.kind.id_name} `{entry.workflow_id}` too"
            raise NotReadyError(ConditionReason.WORKFLOW_ID_IN_USE, message)
        case _:
            return None


def decides(shards: Shards, run: RunRef) -> bool:
    """Whether this process decides if a run may start: only the owner of the shard knows the other runs of the workflow ID."""
    return shards.owns(run.namespace, run.workflow_id)


def _makes_room(entry: Entry, other: Entry, reset: ResetOrigin | None) -> inputs.TerminateRequested:
    """The request to another run of the workflow ID to close for this one."""
    request_id = f"{entry.uid}/conflict"
    if reset is None:
        reason = f"`{entry.name}` replaces it (workflowIdConflictPolicy: TerminateExisting)"
        # Temporal's wording: service/history/api/workflow_id_dedup.go
        details = f"terminated by new runID: {entry.uid}"
        return inputs.TerminateRequested(
            request_id=request_id, reason=reason, details=details, identity=inputs.OPERATOR
        )
    base = reset.base
    reason = f"reset to event {base.event_id} of `{base.name}`, as `{entry.name}`"
    return inputs.TerminateRequested(
        request_id=request_id,
        reason=f"{reason}: {reset.reason}" if reset.reason else reason,
        identity=reset.identity,
        principal=reset.principal,
        reset_run=entry.name,
        reset_event_id=base.event_id if other.uid == base.run_id else 0,
    )


# The first event


def first_event(
    run: RunRef,
    spec: WorkflowRunSpec,
    workflow_type: str,
    values: Any,
    now: datetime,
    *,
    policy: RetryPolicy | None,
    parent: Parent | None,
    continues: Continuation | None,
    extras: StartExtras | None = None,
    schedule: ScheduledBy | None = None,
    principal: str = "",
) -> ev.WorkflowExecutionStarted:
    """The first event of a run.

    Args:
        run: The run.
        spec: The spec of the run.
        workflow_type: The workflow type.
        values: The input, including defaults.
        now: When the run begins.
        policy: The retry policy of the run.
        parent: The parent of the run, if it is a child.
        continues: The run that it continues or retries, whose execution timeout continues.
        extras: Additional options of a Temporal client if workers decide the run; otherwise None.
        schedule: The Schedule that started the run; code gets the outcome of its previous run.
        principal: The user that created the run, authenticated by the API server.
    """
    optional: dict[str, Any] = {}
    if extras is not None and (spec.activity or spec.nexus_operation):
        # The event that schedules it has its input, header, priority and summary.
        optional = {
            "standalone": True,
            "identity": extras.identity,
            "links": extras.links,
            "completion_callbacks": extras.completion_callbacks,
        }
    elif extras is not None and spec.workflow is not None:
        optional = _client_options(extras, spec.workflow.task_queue, run, parent)
    if optional.get("cron_schedule") and continues is None:
        optional["initiator"] = "CronSchedule"
    if optional and schedule is not None and extras is not None and extras.last_completion_result is None:
        optional["last_completion_result"] = schedule.last_completion_result
    if schedule is not None and extras is not None and extras.continued_failure is None:
        extras = msgspec.structs.replace(extras, continued_failure=_failure(schedule.last_failure))
    expiration = continues.expiration if continues else None
    if continues is None and spec.execution_timeout:
        expiration = now + spec.execution_timeout
    run_timeout = spec.run_timeout or spec.execution_timeout or None
    if run_timeout and spec.execution_timeout:
        run_timeout = min(run_timeout, spec.execution_timeout)
    return ev.WorkflowExecutionStarted(
        event_id=1,
        event_time=now,
        principal=principal,
        workflow_type=workflow_type,
        workflow_id=run.workflow_id,
        input=values,
        workflow_execution_timeout=spec.execution_timeout or None,
        workflow_run_timeout=run_timeout,
        steps_timeout=spec.steps_timeout,
        workflow_task_timeout=task_timeout(spec.task_timeout, run_timeout) if spec.workflow else spec.task_timeout,
        workflow_execution_expiration_time=expiration,
        first_workflow_task_backoff=_first_wait(spec, continues, optional.get("cron_schedule", ""), now) or None,
        retry_policy=policy,
        original_execution_run_id=run.uid,
        first_execution_run_id=continues.first_run_id if continues else run.uid,
        continued_execution_run_id=continues.run_id if continues else None,
        continued_failure=continues.failure if continues else extras.continued_failure if extras is not None else None,
        attempt=continues.attempt if continues else 1,
        retries_since=continues.retries_since if continues else None,
        parent=ParentReference(
            name=parent.name,
            workflow_id=parent.workflow_id,
            run_id=parent.run_id,
            initiated_event_id=parent.initiated_event_id,
        )
        if parent
        else None,
        search_attributes=spec.search_attributes,
        successor=successor_name(run.name, run.uid),
        **optional,
    )


def _first_wait(
    spec: WorkflowRunSpec, continues: Continuation | None, cron_schedule: str, now: datetime
) -> timedelta | None:
    """How long the first decision waits; for a cron schedule, rounded up to whole seconds, as on Temporal's server."""
    if spec.activity is not None:
        return None  # the activity itself waits
    due = continues.due if continues else next_due(cron_schedule, now, now)
    if due is None:
        return continues.backoff if continues else spec.start_delay
    return max(timedelta(0), -((now - due) // _SECOND) * _SECOND)


def _failure(failure: Mapping[str, Any] | None) -> Failure | None:
    """Read a failure in the format of a status."""
    try:
        return msgspec.convert(failure, Failure) if failure else None
    except msgspec.ValidationError:
        return Failure(kind=FailureKind.SERVER, message="the failure of the previous run cannot be read")


def _client_options(extras: StartExtras, task_queue: str | None, run: RunRef, parent: Parent | None) -> dict[str, Any]:
    root = extras.root_workflow_id, extras.root_run_id
    if not extras.root_workflow_id:
        root = (parent.workflow_id, parent.run_id) if parent else (run.workflow_id, run.uid)
    return {
        "task_queue": task_queue,
        "identity": extras.identity,
        "header": extras.header,
        "memo": extras.memo,
        "cron_schedule": extras.cron_schedule,
        "initiator": extras.initiator,
        "last_completion_result": extras.last_completion_result,
        "priority": extras.priority,
        "user_metadata": extras.user_metadata,
        "completion_callbacks": extras.completion_callbacks,
        "eager_execution_accepted": extras.eager_execution_accepted,
        "links": extras.links,
        "versioning_override": extras.versioning_override,
        "inherited_pinned_version": extras.inherited_pinned_version,
        "inherited_auto_upgrade_info": extras.inherited_auto_upgrade_info,
        "root_workflow_id": root[0],
        "root_run_id": root[1],
    }


# A start that the first decision records


@dataclass(slots=True)
class UnrecordedStart:
    """The first transition of a run, and when it must be recorded."""

    transition: RunTransition
    due: datetime

    def followed_by(self, transition: RunTransition, now: datetime) -> RunTransition:
        """Combine this and the next transition. The result must be committed if either must be."""
        events = (*self.transition.events, *transition.events)
        return replace(transition, events=events, durable=transition.durable or self.due <= now)


def may_wait(begun: RunStart, record: Record, workers: Workers) -> bool:
    """Whether the start of a run can wait for the first decision of a worker.

    Parents, and clients of the previous run, wait until a run has started, so their runs are recorded immediately.
    """
    state, obj = begun.transition.state, record.object
    if state.code is None or state.offered_task() is None or begun.origin is not None:
        return False
    if parent_of(obj) is not None or continuation_of(obj) is not None or _has_conditions(obj):
        return False
    namespace = obj["metadata"]["namespace"]
    return workers.polled(namespace, state.code.task_queue, version=workers.version_of(namespace, state))


def _has_conditions(obj: kube.Object) -> bool:
    """Whether the status has a reason why the run has not started, which must be removed."""
    return bool((obj.get("status") or {}).get("conditions"))
