"""The next run of a chain: a continuation, a retry, or the next run of a cron schedule."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from perdure.api.lenient import mapping
from perdure.api.times import nearest_duration
from perdure.engine import events as ev
from perdure.engine.failures import RetryState
from perdure.engine.starts import SHORTEST_RUN, StartExtras
from perdure.engine.state import RunState
from perdure.engine.versioning import UNVERSIONED
from perdure.runtime.attempts import KubeObject
from perdure.runtime.chains.policy_fields import retry_policy_json
from perdure.runtime.chains.run_annotations import Continuation, continuation_of, extras_of, first_run_id, parent_of
from perdure.runtime.chains.run_objects import run_object, same_labels, same_spec, with_owners

_CARRIED_REQUESTS = 100
"""Maximum number of last requests to record, because their clients may not have the response yet."""


def successor_run(run: KubeObject, state: RunState, closing: ev.AnyEvent) -> KubeObject:
    """Build the WorkflowRun that continues or retries a closed run.

    Args:
        run: The closed run.
        state: The state of the run.
        closing: The last event of the run.
    """
    meta = run["metadata"]
    tie = Continuation(
        name=meta["name"],
        run_id=meta["uid"],
        first_run_id=first_run_id(run),
        expiration=state.expiration,
        applied=state.requests[-_CARRIED_REQUESTS:],
    )
    spec = same_spec(run)
    extras = extras_of(run)
    if state.retry_policy is not None:
        spec["retryPolicy"] = retry_policy_json(state.retry_policy)
    if isinstance(closing, ev.WorkflowExecutionContinuedAsNew):
        # Like Temporal's server, delay a run that continues immediately again and again. The delay of the run itself does not
        # count, or every second run would not wait.
        began = state.first_decision_time or state.began
        left = min(SHORTEST_RUN - (closing.event_time - began), SHORTEST_RUN)
        tie = msgspec.structs.replace(tie, signals=closing.signals, backoff=left if left > timedelta(0) else None)
        if closing.new_run_backoff:
            tie = msgspec.structs.replace(tie, backoff=max(closing.new_run_backoff, tie.backoff or timedelta(0)))
        spec["input"] = closing.input
        if closing.input is None:
            del spec["input"]
        spec, extras = _as_continued(spec, extras, state, closing)
    elif is_by_cron(closing):
        wait = getattr(closing, "new_run_backoff", None) or timedelta(0)
        tie = msgspec.structs.replace(tie, due=closing.event_time + wait, failure=ev.failure_of(closing))
        extras = msgspec.structs.replace(
            extras,
            initiator="CronSchedule",
            request_id="",
            inherited_pinned_version=None,
            inherited_auto_upgrade_info=None,
        )
        if isinstance(closing, ev.WorkflowExecutionCompleted):
            extras = msgspec.structs.replace(extras, last_completion_result=closing.result)
    else:
        assert isinstance(closing, ev.WorkflowExecutionFailed | ev.WorkflowExecutionTimedOut)
        tie = msgspec.structs.replace(
            tie,
            attempt=state.attempt + 1,
            retries_since=state.retries_since or state.start_time,
            failure=ev.failure_of(closing),
            backoff=closing.new_run_backoff,
        )
        extras = _as_retried(extras, state)
        if isinstance(
            closing, ev.WorkflowExecutionFailed
        ):  # as Temporal's server does; after a timeout it keeps the result
            extras = msgspec.structs.replace(extras, last_completion_result=None)
    given = None
    if state.code is not None:
        override = state.code.versioning.inherited_override
        callbacks = tuple(each.callback for each in state.callbacks.values() if not each.update_id)
        given = msgspec.structs.replace(
            extras,
            identity="",
            links=None,
            versioning_override=override,
            completion_callbacks=callbacks,
            eager_execution_accepted=False,
        )
    successor = run_object(
        meta["namespace"], state.successor, spec, parent_of(run), tie, same_labels(run), extras=given
    )
    return with_owners(successor, run)


def is_by_cron(closing: ev.AnyEvent) -> bool:
    """Whether the next run is one of a cron schedule, and neither a continuation nor a retry."""
    return not isinstance(closing, ev.WorkflowExecutionContinuedAsNew) and (
        getattr(closing, "retry_state", None) is not RetryState.IN_PROGRESS
    )


def successor_refused(status: Mapping[str, Any]) -> str:
    """Why the next run of a chain cannot be created; empty if it exists or is not needed."""
    return str(mapping(status.get("state")).get("successorRefused", ""))


def next_run(status: Mapping[str, Any]) -> str:
    """Name of the run that continues, retries, or resets a closed run; empty if there is none."""
    events = mapping(status.get("history")).get("events") or [{}]
    name = events[-1].get("newWorkflowRun") or events[-1].get("resetRun")
    return "" if successor_refused(status) else str(name or "")


def _as_continued(
    spec: dict[str, Any], extras: StartExtras, state: RunState, closing: ev.WorkflowExecutionContinuedAsNew
) -> tuple[dict[str, Any], StartExtras]:
    """Return the spec and extras of the next run, from the continue-as-new command of an SDK.

    The next run inherits no retry policy, memo, search attributes or user metadata: SDKs send the ones to keep (Temporal:
    addWorkflowExecutionStartedEventForContinueAsNew).
    """
    code = state.code
    if code is None:
        return spec, extras
    spec = dict(spec)
    spec["workflow"] = {
        "type": closing.workflow_type or code.workflow_type,
        "taskQueue": closing.task_queue or code.task_queue,
    }
    for field, length in (
        ("runTimeout", closing.workflow_run_timeout),
        ("taskTimeout", closing.workflow_task_timeout),
    ):
        if length:
            spec[field] = nearest_duration(length)
    spec.pop("retryPolicy", None)
    spec.pop("searchAttributes", None)
    if closing.retry_policy is not None:
        spec["retryPolicy"] = retry_policy_json(closing.retry_policy)
    if closing.search_attributes:
        spec["searchAttributes"] = closing.search_attributes
    initial, versioning = closing.initial_versioning_behavior, code.versioning
    extras = msgspec.structs.replace(
        extras,
        header=closing.header,
        memo=closing.memo,
        user_metadata=None,
        initiator=closing.initiator or "Workflow",
        last_completion_result=closing.last_completion_result,
        cron_schedule=closing.cron_schedule,
        request_id="",
        inherited_pinned_version=None if initial else versioning.inherited,
        inherited_auto_upgrade_info=versioning.inherited_upgrade(initial),
    )
    return spec, extras


def _as_retried(extras: StartExtras, state: RunState) -> StartExtras:
    """Return the extras of a retry. It inherits a version only if the previous run did and its current versioning keeps it."""
    versioning = state.code.versioning if state.code is not None else UNVERSIONED
    before = extras.inherited_auto_upgrade_info
    return msgspec.structs.replace(
        extras,
        initiator="Retry",
        request_id="",
        inherited_pinned_version=versioning.inherited if extras.inherited_pinned_version is not None else None,
        inherited_auto_upgrade_info=versioning.inherited_upgrade(
            before.continue_as_new_initial_versioning_behavior if before is not None else ""
        ),
    )


def is_successor(obj: KubeObject, uid: str) -> bool:
    """Whether a WorkflowRun continues or retries the run with this UID."""
    tie = continuation_of(obj)
    return tie is not None and tie.run_id == uid
