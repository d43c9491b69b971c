"""Runs that runs start: children, and the next run of a chain (continue-as-new, retry). Built and read; pure.

What ties a run to another stands in two annotations, which only the operator may write (templates/runfence.yaml). It is in one
place and not in the spec, because the spec is the user's.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from perdure.api import labels
from perdure.api.durations import format_decimal_duration, nearest_duration
from perdure.api.lenient import mapping, read_annotation
from perdure.api.names import child_name, label_value
from perdure.engine import events as ev
from perdure.engine.failures import Failure, RetryState
from perdure.engine.opaque import plain
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import (
    SHORTEST_RUN,
    CarriedSignal,
    ParentClosePolicy,
    ParentReference,
    StartExtras,
    WorkflowStart,
)
from perdure.engine.state import PendingChild, RunState, RunStatus
from perdure.engine.versioning import UNVERSIONED, Versioning
from perdure.runtime.attempts import KubeObject, RunRef


def is_open(status: Mapping[str, Any]) -> bool:
    """Whether a run with this status is open, or has not started."""
    recorded: object = mapping(status.get("state")).get("status", RunStatus.RUNNING)
    return recorded == RunStatus.RUNNING


class Parent(ParentReference, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a child carries of its parent."""

    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE
    depth: int = 1
    """How many ancestors the child has. A child that started before this was recorded counts as the first."""


_CARRIED_REQUESTS = 100
"""Those whose answers nobody may know yet are the last ones."""


class Continuation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What the next run of a chain carries of the one before."""

    name: str
    """Of the WorkflowRun before."""
    run_id: str
    first_run_id: str
    attempt: int = 1
    retries_since: datetime | None = None
    """When the first of the runs that retry each other has started."""
    expiration: datetime | None = None
    """When the execution timeout of the whole chain ends."""
    backoff: timedelta | None = None
    due: datetime | None = None
    """When a run of a cron schedule makes its first step: not later because the run itself was made late."""
    failure: Failure | None = None
    """Why the run before failed, where this one retries it, or follows it by a cron schedule."""
    signals: tuple[CarriedSignal, ...] = ()
    heeded: tuple[str, ...] = ()
    """Ids of the last requests that were heeded: who does not know the answer yet asks this run, and changes nothing."""


class Ancestor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A run whose history another one began with."""

    name: str
    """Of the WorkflowRun."""
    run_id: str
    event_id: int
    """The last event that was taken over."""


class ResetOrigin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a run that was made by a reset carries of the one that was reset."""

    request_id: str
    """Of the request: the UID of an Operation."""
    lineage: Annotated[tuple[Ancestor, ...], msgspec.Meta(min_length=1)]
    """Whose history it begins with, last; before it, whose history that one began with, and so on."""
    reapply_signals: bool = True
    reapply_updates: bool = True
    kept: tuple[int, ...] = ()
    """Of a retry: the later ActivityTaskCompleted events whose results are kept."""
    reason: str = ""
    identity: str = ""
    principal: str = ""

    @property
    def base(self) -> Ancestor:
        """The run that was reset."""
        return self.lineage[-1]

    @property
    def original(self) -> Ancestor:
        """The run that the history began as: what `run.name` and `run.runId` mean in it does not change by a reset."""
        return self.lineage[0]

    def origin(self, event_id: int) -> str | None:
        """UID of the run that has recorded an event; None if it is this one itself."""
        found = None
        for ancestor in reversed(self.lineage):
            if event_id > ancestor.event_id:
                break
            found = ancestor.run_id
        return found


def parent_of(run: KubeObject) -> Parent | None:
    """The parent of a run; None for one that has none, or whose annotation is not ours."""
    return read_annotation(run, labels.PARENT_ANNOTATION, Parent)


def depth_of(run: KubeObject) -> int:
    """How many ancestors a run has: its parent, the parent of that, and so on. The next runs of its chain have as many."""
    parent = parent_of(run)
    return parent.depth if parent is not None else 0


def continuation_of(run: KubeObject) -> Continuation | None:
    """What a run continues or retries; None for the first of a chain."""
    return read_annotation(run, labels.CONTINUES_ANNOTATION, Continuation)


def extras_of(run: KubeObject) -> StartExtras:
    """What a Temporal client said when it started the run; nothing where none did."""
    return read_annotation(run, labels.START_ANNOTATION, StartExtras) or StartExtras()


def created_by(obj: KubeObject) -> str:
    """The user that has made a WorkflowRun or an Operation, as the API server says; empty where that is not known."""
    return str((obj["metadata"].get("annotations") or {}).get(labels.CREATED_BY_ANNOTATION, ""))


def reset_of(run: KubeObject) -> ResetOrigin | None:
    """What a run begins with of another one; None for one that begins by itself."""
    return read_annotation(run, labels.RESET_ANNOTATION, ResetOrigin)


def first_run_id(run: KubeObject) -> str:
    """UID of the first run of a chain, which goes on through continuing, retries and resets."""
    before, reset = continuation_of(run), reset_of(run)
    if before is not None:
        return before.first_run_id
    return reset.lineage[0].run_id if reset is not None else str(run["metadata"]["uid"])


def inherited_priority(inherited: Any, own: Any) -> Any:
    """A priority, as JSON: what it says itself; what it leaves out is inherited. None for no priority."""
    return {**(inherited or {}), **(own or {})} or None


def child_run(
    parent: RunRef,
    child: PendingChild,
    depth: int = 1,
    priority: Any = None,
    versioning: Versioning = UNVERSIONED,
) -> KubeObject:
    """The WorkflowRun of a child that is to be started; its name is a lock.

    A child that is to be terminated with its parent also goes with the parent's object: it is owned by it.

    Args:
        parent: The run that starts it.
        child: What it starts.
        depth: How many ancestors the child has.
        priority: Of the parent, as JSON; the child inherits what it does not say itself.
        versioning: Of the parent; the child inherits a version that it is pinned to.
    """
    assert child.start is not None
    tie = Parent(
        name=parent.name,
        workflow_id=parent.workflow_id,
        run_id=parent.uid,
        initiated_event_id=child.initiated_event_id,
        parent_close_policy=child.parent_close_policy,
        depth=depth,
    )
    name = child_name(parent.name, child.initiated_event_id)
    extras = child.start.extras
    if priority:
        extras = extras or StartExtras()
        extras = msgspec.structs.replace(extras, priority=inherited_priority(priority, extras.priority))
    if child.start.task_queue and versioning != UNVERSIONED:
        extras = msgspec.structs.replace(
            extras or StartExtras(),
            inherited_pinned_version=versioning.inherited,
            inherited_auto_upgrade_info=versioning.inherited_upgrade(),
            versioning_override=versioning.inherited_override,
        )
    return _run(parent.namespace, name, _spec(child.start), tie, None, extras=extras)


def successor_run(run: KubeObject, state: RunState, closing: ev.AnyEvent) -> KubeObject:
    """The WorkflowRun that follows one which has closed as continued, or as to be retried.

    Args:
        run: The run that has closed.
        state: Its state.
        closing: Its last event.
    """
    meta = run["metadata"]
    tie = Continuation(
        name=meta["name"],
        run_id=meta["uid"],
        first_run_id=first_run_id(run),
        expiration=state.expiration,
        heeded=state.requests[-_CARRIED_REQUESTS:],
    )
    spec = _same_spec(run)
    extras = extras_of(run)
    if state.retry_policy is not None:
        spec["retryPolicy"] = retry_policy_json(state.retry_policy)
    if isinstance(closing, ev.WorkflowExecutionContinuedAsNew):
        # A run that continues immediately, again and again, is slowed down, as by Temporal's server. The time that the run
        # itself has waited for that does not count, or every second run would not wait.
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
        if isinstance(closing, ev.WorkflowExecutionFailed):  # as Temporal's server; after a timeout it keeps the result
            extras = msgspec.structs.replace(extras, last_completion_result=None)
    given = None
    if state.code is not None:
        override = state.code.versioning.inherited_override
        given = msgspec.structs.replace(extras, identity="", links=None, versioning_override=override)
    successor = _run(meta["namespace"], state.successor, spec, parent_of(run), tie, _same_labels(run), extras=given)
    return _as_owned(successor, run)


def is_by_cron(closing: ev.AnyEvent) -> bool:
    """Whether the run that follows is the next one of a cron schedule: a retry is in progress, a cron run is not."""
    return not isinstance(closing, ev.WorkflowExecutionContinuedAsNew) and (
        getattr(closing, "retry_state", None) is not RetryState.IN_PROGRESS
    )


def _as_continued(
    spec: dict[str, Any], extras: StartExtras, state: RunState, closing: ev.WorkflowExecutionContinuedAsNew
) -> tuple[dict[str, Any], StartExtras]:
    """What code wants the next run to be.

    That one inherits no retry policy, memo, search attributes or user metadata: SDKs hand on what they keep (Temporal:
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
    """What a retry inherits: a version only if the run before has inherited one, and only as that is pinned or not now."""
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


def reset_run(run: KubeObject, reset: ResetOrigin, name: str) -> KubeObject:
    """The WorkflowRun that a reset makes: of the same chain and parent, with the same spec.

    Args:
        run: The run that is reset.
        reset: What the new one begins with.
        name: Its name, which is a lock.
    """
    tie = continuation_of(run)
    namespace, own = run["metadata"]["namespace"], _same_labels(run)
    body = _run(namespace, name, _same_spec(run), parent_of(run), tie, own, extras=extras_of(run))
    body["metadata"]["annotations"][labels.RESET_ANNOTATION] = msgspec.json.encode(reset).decode()
    return _as_owned(body, run)


def _same_spec(run: KubeObject) -> dict[str, Any]:
    """The spec of a run, for another one of its workflow id that goes on for it."""
    spec = {**run["spec"], "workflowId": run["spec"].get("workflowId") or run["metadata"]["name"]}
    spec.pop("startDelay", None)
    spec.pop("startPaused", None)
    return spec


def _same_labels(run: KubeObject) -> dict[str, str]:
    found = run["metadata"].get("labels") or {}
    return {key: value for key, value in found.items() if key != labels.PARENT_RUN_ID_LABEL}


def adopted(child: KubeObject, parent: RunRef) -> KubeObject:
    """What to merge into the metadata of a child, so that it is one of a run that was reset.

    Args:
        child: A run that has another parent.
        parent: The parent that it is to have.
    """
    before = parent_of(child)
    assert before is not None
    tie = msgspec.structs.replace(before, name=parent.name, run_id=parent.uid)
    meta = child["metadata"]
    owners = [
        {**o, "name": parent.name, "uid": parent.uid} if o["uid"] == before.run_id else o
        for o in meta.get("ownerReferences") or ()
    ]
    changed: dict[str, Any] = {
        "resourceVersion": meta["resourceVersion"],
        "annotations": {labels.PARENT_ANNOTATION: msgspec.json.encode(tie).decode()},
        "labels": {labels.PARENT_RUN_LABEL: label_value(parent.name), labels.PARENT_RUN_ID_LABEL: parent.uid},
    }
    if owners:
        changed["ownerReferences"] = owners
    return {"metadata": changed}


_OWNERS = frozenset({"Schedule", "DeadLetter"})
_OF_OWNERS = (labels.SCHEDULED_BY_ANNOTATION, labels.DEAD_LETTER_ANNOTATION, labels.REQUEST_ANNOTATION)


def _as_owned(successor: KubeObject, run: KubeObject) -> KubeObject:
    """Let a run belong to the Schedule or the DeadLetter that the one before belongs to."""
    meta, new = run["metadata"], successor["metadata"]
    told = meta.get("annotations") or {}
    new["annotations"] |= {key: told[key] for key in _OF_OWNERS if key in told}
    owners = [owner for owner in meta.get("ownerReferences") or () if owner.get("kind") in _OWNERS]
    if owners:
        new["ownerReferences"] = [*(new.get("ownerReferences") or ()), *owners]
    return successor


def is_child(obj: KubeObject, parent: RunRef, child: PendingChild) -> bool:
    """Whether a WorkflowRun is that child, or a later run of its chain."""
    tie = parent_of(obj)
    return tie is not None and (tie.run_id, tie.initiated_event_id) == (parent.uid, child.initiated_event_id)


def is_successor(obj: KubeObject, uid: str) -> bool:
    """Whether a WorkflowRun continues or retries the one of that uid."""
    tie = continuation_of(obj)
    return tie is not None and tie.run_id == uid


def _run(  # noqa: PLR0917 (the parts of one object)
    namespace: str,
    name: str,
    spec: dict[str, Any],
    parent: Parent | None,
    continues: Continuation | None,
    own_labels: Mapping[str, str] | None = None,
    *,
    extras: StartExtras | None = None,
) -> KubeObject:
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "labels": dict(own_labels or {}),
        "annotations": {},
    }
    if parent is not None:
        metadata["labels"][labels.PARENT_RUN_LABEL] = label_value(parent.name)
        metadata["labels"][labels.PARENT_RUN_ID_LABEL] = parent.run_id
        metadata["annotations"][labels.PARENT_ANNOTATION] = msgspec.json.encode(parent).decode()
        if parent.parent_close_policy is ParentClosePolicy.TERMINATE:
            metadata["ownerReferences"] = [
                {
                    "apiVersion": labels.API_VERSION,
                    "kind": "WorkflowRun",
                    "name": parent.name,
                    "uid": parent.run_id,
                    "blockOwnerDeletion": False,
                }
            ]
    if extras is not None and extras != StartExtras():
        metadata["annotations"][labels.START_ANNOTATION] = msgspec.json.encode(extras).decode()
    if continues is not None:
        metadata["annotations"][labels.CONTINUES_ANNOTATION] = msgspec.json.encode(continues).decode()
    return {"apiVersion": labels.API_VERSION, "kind": "WorkflowRun", "metadata": metadata, "spec": spec}


def _spec(start: WorkflowStart) -> dict[str, Any]:
    """The spec of a WorkflowRun that a start asks for."""
    workflow: dict[str, Any] = {"name": start.workflow_type}
    if start.task_queue:
        workflow = {"type": start.workflow_type, "taskQueue": start.task_queue}
    spec: dict[str, Any] = {
        "workflow": workflow,
        "workflowId": start.workflow_id,
        "workflowIdReusePolicy": start.workflow_id_reuse_policy,
        "input": start.input if start.task_queue else plain(start.input),
        "searchAttributes": start.search_attributes,
        "retryPolicy": retry_policy_json(start.retry_policy) if start.retry_policy else None,
    }
    for field, length in (
        ("executionTimeout", start.workflow_execution_timeout),
        ("runTimeout", start.workflow_run_timeout),
        ("taskTimeout", start.workflow_task_timeout),
    ):
        spec[field] = nearest_duration(length) if length else None
    return {key: value for key, value in spec.items() if value not in (None, {})}


def retry_policy_json(policy: RetryPolicy) -> dict[str, Any]:
    """A policy as it is written in place: a run keeps to what was recorded, whatever becomes of the RetryPolicy since."""
    google = policy.cloud_scheduler
    if google is not None:
        return {
            "cloudScheduler": {
                "retryCount": google.retry_count,
                "maxRetryDuration": format_decimal_duration(google.max_retry_duration),
                "minBackoffDuration": format_decimal_duration(google.min_backoff_duration),
                "maxBackoffDuration": format_decimal_duration(google.max_backoff_duration),
                "maxDoublings": google.max_doublings,
            }
        }
    written: dict[str, Any] = {
        "initialInterval": nearest_duration(policy.initial_interval),
        "backoffCoefficient": _coefficient(policy.backoff_coefficient),
        "maximumAttempts": policy.maximum_attempts,
        "nonRetryableErrorTypes": list(policy.non_retryable_error_types),
    }
    if policy.maximum_interval is not None:
        written["maximumInterval"] = nearest_duration(policy.maximum_interval)
    return {"exponential": written}


_LARGEST_COEFFICIENT = 999_999.999999999


def _coefficient(value: float) -> str:
    """A coefficient as the API has it: up to six digits, and nine after the point, no exponent.

    Those are fifteen, so what was written so comes back as it was; clients of Temporal may give others, which are rounded.
    """
    return f"{min(value, _LARGEST_COEFFICIENT):.9f}".rstrip("0").removesuffix(".")
