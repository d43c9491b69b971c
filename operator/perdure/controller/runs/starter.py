"""The start of a run: with its first event, or with the history of another run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import msgspec

from perdure.api.reasons import ConditionReason
from perdure.api.workflowrun import WorkflowRunSpec
from perdure.controller.directory import Standing, entry_of
from perdure.controller.errors import NotYetError, RefusedError
from perdure.controller.payloads.payload_store import give
from perdure.controller.pods.workspace_volumes import WorkspaceVolumes
from perdure.controller.reconcile.inbox import Inbox, PendingRequest
from perdure.controller.reconcile.newer_states import NewerStateError
from perdure.controller.reconcile.record import Record
from perdure.controller.runs.effects import children
from perdure.controller.runs.effects.effect_context import EffectContext
from perdure.controller.runs.first_event import Idle, Pointer, first_event
from perdure.controller.runs.history_segments import ForeignSegmentError
from perdure.controller.runs.resets import check_exists, fork_of, since_fork, still_open
from perdure.controller.runs.run_deciders import Deciding, RunDeciders
from perdure.controller.runs.run_limits import RunLimits
from perdure.controller.runs.run_record import Origin, RunRecord
from perdure.controller.runs.workflow_ids import claim, decides
from perdure.controller.tools import Tools
from perdure.controller.workflows.definitions import (
    Definition,
    NotReadyError,
    as_far_as_fit,
    check_options,
    newer_definition,
    read_spec,
)
from perdure.engine import inputs
from perdure.engine.decider import Decider
from perdure.engine.opaque import referred_to
from perdure.engine.recording import policy_named, resolved
from perdure.engine.resets import begin, kept_results
from perdure.engine.retry import PolicyReference, RetryPolicy
from perdure.engine.standalone import OneActivity
from perdure.engine.starts import StartExtras
from perdure.engine.step import RunTransition, start, step
from perdure.language.interpreter import Refuser
from perdure.language.program import InvalidWorkflowError, retry_policy, with_defaults
from perdure.runtime import segments
from perdure.runtime.blobs import owner_of
from perdure.runtime.chains import ResetOrigin, continuation_of, created_by, extras_of, parent_of
from perdure.runtime.operation_requests import start_signal_of
from perdure.runtime.searching import search_marks
from perdure.schedule.run_manifests import scheduled_by

INVALID_INPUT = ConditionReason.INVALID_INPUT.value
"""Failure type of a run whose input does not match the schema of its Workflow."""
ENDS = (inputs.TerminateRequested, inputs.CancelRequested)
"""Requests that end a run that cannot start yet."""
_PAUSES = (inputs.PauseRequested, inputs.UnpauseRequested)
_NOTHING_ASKED = WorkflowRunSpec.model_construct()
"""The spec of a run whose own spec is invalid: it starts only to fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun(Deciding):
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
    spec: WorkflowRunSpec = _NOTHING_ASKED
    decider: Decider | None = None
    definition: Definition | None = None
    given: Any = None
    policy: RetryPolicy | None = None
    extras: StartExtras | None = None


class RunStarter:
    """Begins one run."""

    def __init__(
        self,
        tools: Tools,
        context: EffectContext,
        record: RunRecord,
        inbox: Inbox[inputs.Request],
        deciders: RunDeciders,
    ) -> None:
        """Create it without reading.

        Args:
            tools: The shared services.
            context: The run, and the other runs.
            record: The stored record of the run.
            inbox: The requests to the run.
            deciders: Finds the decider of the run.
        """
        self._tools = tools
        self._context = context
        self._run = context.run
        self._stored = record
        self._inbox = inbox
        self._deciders = deciders
        self._limits = RunLimits(tools, context, record.record)

    @property
    def _record(self) -> Record:
        return self._stored.record

    async def begin(self, now: datetime) -> Begun:
        """Start the run. An invalid run starts and fails.

        Raises:
            NotReadyError: It cannot begin yet, and was not asked to end.
            NotYetError: Its definition is being compiled, and it was not asked to terminate.
            NewerStateError: Its spec, or the run that it continues by a reset, is of a newer version.
            ConflictError: Another client has written to it.
        """
        draft = _Draft(self._run.name)
        try:
            draft.spec = read_spec(self._record.object["spec"])
            if self._context.reset is not None:
                return await self._begin_from(self._context.reset, draft.spec, now)
            await self._find_out(draft, now)
        except NotReadyError:
            if not self._inbox.has(*ENDS):
                raise
            draft.decider = Idle()
        except NotYetError:
            # A cancellation waits for the definition: whether handlers run must not depend on how long compiling takes.
            if not self._inbox.has(inputs.TerminateRequested):
                raise
            draft.decider = Idle()
        except InvalidWorkflowError as error:
            inline = self._record.object["spec"].get("inline")
            if inline is not None and (why := newer_definition(inline, "spec.inline")):
                raise NewerStateError(why) from error
            draft.decider, draft.spec = Refuser(str(error), error.type), as_far_as_fit(draft.spec)
        except RefusedError as error:
            draft.decider = Refuser(error.message, error.reason.value)
        return await self._first_transition(draft, now)

    async def _find_out(self, draft: _Draft, now: datetime) -> None:
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
            if isinstance(standalone, OneActivity):
                draft.workflow_type = standalone.activity.activity_type
                used = policy_named(standalone.activity)
                await self._find_policies(spec, frozenset({used} if used else ()))
            else:
                draft.workflow_type = standalone.operation.operation
            return
        if spec.workflow is not None and spec.workflow.type is not None:
            draft.workflow_type, draft.given = spec.workflow.type, spec.input
            draft.extras = await self._extras(spec.workflow.task_queue or "")
            draft.policy = await self._find_policies(spec, frozenset())
            return
        definition, draft.given = await self._find_definition(spec)
        draft.workflow_type = definition.workflow_type
        draft.policy = await self._find_policies(spec, definition.program.retry_policies)
        await self._limits.take(definition.program, draft.given, spec, now)
        draft.decider, draft.definition = self._deciders.interpreter(definition, spec, now), definition

    async def _extras(self, task_queue: str) -> StartExtras:
        """The fields in annotations, without inherited versions whose workers do not poll the task queue."""
        extras = extras_of(self._record.object)
        if continuation_of(self._record.object) is None and parent_of(self._record.object) is None:
            return extras
        for field, version in extras.inherited_versions().items():
            if not await self._tools.workers.has_task_queue(self._run.namespace, task_queue, version):
                extras = msgspec.structs.replace(extras, **{field: None})
        return extras

    async def _first_transition(self, draft: _Draft, now: datetime) -> Begun:
        continues = continuation_of(self._record.object)
        first = first_event(
            self._run,
            draft.spec,
            draft.workflow_type,
            draft.given,
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
            policies=self._tools.policies.of(self._run.namespace),
        )
        requests = [each for each in self._inbox if idle and not isinstance(each.request, _PAUSES)]
        if requests:
            ended = step(transition.state, [each.request for each in requests], now, Idle())
            transition = replace(ended, events=(*transition.events, *ended.events))
        return Begun(decider=draft.decider, definition=draft.definition, transition=transition, requests=requests)

    async def _find_definition(self, spec: WorkflowRunSpec) -> tuple[Definition, Any]:
        """The definition that the run is pinned to when it starts now, and its input with defaults.

        Raises:
            NotYetError: The definition is being compiled.
            NotReadyError: The Workflow is missing or invalid.
            InvalidWorkflowError: The run is not valid.
        """
        inline = self._record.object["spec"].get("inline")
        definition = await self._tools.definitions.find(self._run.namespace, self._run.name, spec, inline)
        given = with_defaults(definition.program, spec.input)
        wrong = definition.program.check_input(given)
        if wrong:
            raise InvalidWorkflowError(wrong, INVALID_INPUT)
        return definition, given

    async def _find_policies(self, spec: WorkflowRunSpec, used: frozenset[str]) -> RetryPolicy | None:
        """Check that the RetryPolicies of the run and its definition exist; return the policy of the run.

        Raises:
            NotReadyError: A RetryPolicy is missing or invalid.
        """
        chosen = retry_policy(spec.retry_policy) if spec.retry_policy else None
        own = {chosen.name} if isinstance(chosen, PolicyReference) else set()
        namespace = self._run.namespace
        missing = await self._tools.policies.missing(namespace, used | own)
        if missing:
            names = ", ".join(f"`{name}`" for name in missing)
            message = f"there is no valid RetryPolicy {names} in namespace `{namespace}`"
            raise NotReadyError(ConditionReason.RETRY_POLICY_NOT_FOUND, f"{message}; the run starts once there is one")
        return None if chosen is None else resolved(chosen, self._tools.policies.of(namespace))

    # From another run's history

    async def _begin_from(self, reset: ResetOrigin, spec: WorkflowRunSpec, now: datetime) -> Begun:
        """Start with the history of another run, up to a point.

        All steps before the commit are found again after a crash: the other run is closed, its children belong to this run, and
        the segments have the same names and events.

        Raises:
            RefusedError: The history cannot be continued from this point.
            NotReadyError: The other runs of the workflow ID must close first.
        """
        client, definitions = self._tools.client, self._tools.definitions
        fork = await fork_of(client, definitions, self._record.object, reset)  # before another run is stopped
        await self._claim(spec)
        if not fork.final:
            fork = await fork_of(client, definitions, self._record.object, reset)
        if not fork.final:
            raise NotReadyError(ConditionReason.WORKFLOW_ID_IN_USE, f"`{reset.base.name}` must close first")
        if fork.definition is not None:
            given = with_defaults(fork.definition.program, spec.input)
            await self._limits.take(fork.definition.program, given, spec, now)
            await self._limits.take_again(fork.state.holds.values(), spec, now)
        reapplied = await since_fork(client, fork, reset)
        decider = self._deciders.interpreter(fork.definition, spec, fork.state.start_time) if fork.definition else None
        if fork.definition is not None:
            volumes = WorkspaceVolumes(client, self._run, reset)
            volumes.define(fork.definition.program.spec.workspaces)
            await volumes.take_over()
        sealed, past = segments.chain(self._run, fork.events)
        taken = msgspec.json.encode(fork.events)
        await self._stored.artifacts.hold(taken)
        for name in referred_to(taken):
            await give(client, self._run.namespace, name, owner_of(self._record.object))
        await check_exists(client, self._run.namespace, reset.base)
        await children.take_over(self._context, reset.base, still_open(fork.state, reapplied))
        try:
            await self._stored.segments.put(sealed)
        except ForeignSegmentError as error:
            raise RefusedError(ConditionReason.SEGMENT_CHANGED, str(error)) from error
        if spec.search_attributes:
            await self._record.mark(*search_marks(spec.search_attributes))
        event = fork.event(self._run, reset, now)
        policies = self._tools.policies.of(self._run.namespace)
        kept = kept_results(fork.state, fork.later, reset.kept)
        transition = begin(fork.state, event, reapplied, decider or Idle(), fork.requests, policies=policies, kept=kept)
        before = {**self._record.status, "history": {**past, "nextEventId": event.event_id}}
        origin = Origin(before, fork.state)
        return Begun(decider=decider, definition=fork.definition, transition=transition, origin=origin)

    async def _claim(self, spec: WorkflowRunSpec) -> Decider | None:
        """Claim the workflow ID. Return the decider of the run if another run of the ID is open; None if no other run is.

        Raises:
            NotReadyError: The run must wait for another run.
            ConflictError: The run no longer waits.
        """
        if decides(self._tools.shards, self._run):
            await self._context.peers.catch_up(self._run.namespace)
        directory = self._context.peers.directory
        entry = directory.get(self._run.uid) or entry_of(self._record.object)
        other = directory.open_run(entry.namespace, entry.workflow_id, kind=entry.kind)
        if other is not None and other.standing is Standing.OPEN and other.uid != self._run.uid:
            await self._record.confirm(afresh=True)  # only a run that waits now may stop another one
        return claim(self._context.peers, entry, spec, self._context.reset)
