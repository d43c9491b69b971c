"""Runs that other runs start: children, and the next run of a chain (continue-as-new, retry, cron, reset). Pure.

Annotations, which only the operator may write (templates/runfence.yaml), store the relations of a run. They are not in the
spec, because the spec belongs to the user.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from perdure.api import labels
from perdure.api.json_values import mapping
from perdure.api.names import child_name, label_value
from perdure.api.policies import ParentClosePolicy
from perdure.api.stored import StoredStruct, read_annotation
from perdure.api.times import format_decimal_duration, nearest_duration
from perdure.engine import events as ev
from perdure.engine.failures import Failure, RetryState
from perdure.engine.payloads import plain
from perdure.engine.retry import RetryPolicy
from perdure.engine.starts import SHORTEST_RUN, CarriedSignal, ParentReference, StartExtras, WorkflowStart
from perdure.engine.state import PendingChild, RunState, RunStatus
from perdure.engine.versioning import UNVERSIONED, Versioning, VersioningOverride
from perdure.runtime.attempts import KubeObject, RunRef


class Parent(ParentReference, frozen=True, kw_only=True):
    """The parent of a child, in an annotation of the child."""

    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE
    depth: int = 1
    """Number of ancestors of the child; 1 if an older version, which did not record it, started the child."""


class Continuation(StoredStruct, frozen=True, kw_only=True):
    """The previous run of a chain, in an annotation of the next one."""

    name: str
    """Name of the previous WorkflowRun."""
    run_id: str
    first_run_id: str
    attempt: int = 1
    retries_since: datetime | None = None
    """Start time of the first run in a series of retries."""
    expiration: datetime | None = None
    """When the execution timeout of the whole chain ends."""
    backoff: timedelta | None = None
    due: datetime | None = None
    """When the first decision of a run of a cron schedule is due, even if the run itself was created late."""
    failure: Failure | None = None
    """Why the previous run failed, if this one retries it or follows it by a cron schedule."""
    signals: tuple[CarriedSignal, ...] = ()
    applied: tuple[str, ...] = msgspec.field(default=(), name="heeded")  # wordlist: the name in stored annotations
    """IDs of the last applied requests: a client that got no response may send one again to this run, without effect."""


class Ancestor(StoredStruct, frozen=True, kw_only=True):
    """A run from whose history another run copied its first events."""

    name: str
    """Name of the WorkflowRun."""
    run_id: str
    event_id: int
    """The last event that the other run has taken over."""


class ResetOrigin(StoredStruct, frozen=True, kw_only=True):
    """The run that was reset, in an annotation of the run that the reset created."""

    request_id: str
    """ID of the request: the UID of an Operation."""
    lineage: Annotated[tuple[Ancestor, ...], msgspec.Meta(min_length=1)]
    """The runs from which the history was copied; the last one is the run that was reset."""
    reapply_signals: bool = True
    reapply_updates: bool = True
    kept: tuple[int, ...] = ()
    """For a retry: the later ActivityTaskCompleted and ChildWorkflowExecutionCompleted events whose results are kept."""
    repeated: tuple[int, ...] = ()
    """For a retry: the events that initiated the open children that start again because they have failed."""
    overrides: tuple[VersioningOverride | None, ...] = ()
    """The changes of the versioning override that follow the reset, each before the next; None removes it."""
    reason: str = ""
    identity: str = ""
    principal: str = ""

    @property
    def base(self) -> Ancestor:
        """The run that was reset."""
        return self.lineage[-1]

    @property
    def original(self) -> Ancestor:
        """The run that recorded the start: a reset does not change `run.name` and `run.runId`."""
        return self.lineage[0]

    def recorder(self, event_id: int) -> Ancestor | None:
        """The earlier run that recorded an event; None if this run did."""
        found = None
        for ancestor in reversed(self.lineage):
            if event_id > ancestor.event_id:
                break
            found = ancestor
        return found

    def origin(self, event_id: int) -> str | None:
        """UID of the run that recorded an event; None if this run did."""
        found = self.recorder(event_id)
        return found.run_id if found is not None else None


def parent_of(run: KubeObject) -> Parent | None:
    """The parent of a run; None if it has none, or if the annotation is not valid."""
    return read_annotation(run, labels.PARENT_ANNOTATION, Parent)


def depth_of(run: KubeObject) -> int:
    """Number of ancestors of a run. All runs of a chain have the same number."""
    parent = parent_of(run)
    return parent.depth if parent is not None else 0


def continuation_of(run: KubeObject) -> Continuation | None:
    """Return the previous run of a chain, which a run continues or retries; None for the first run of a chain."""
    return read_annotation(run, labels.CONTINUES_ANNOTATION, Continuation)


def extras_of(run: KubeObject) -> StartExtras:
    """The options of the Temporal client that started the run; empty if another client did."""
    return read_annotation(run, labels.START_ANNOTATION, StartExtras) or StartExtras()


def created_by(obj: KubeObject) -> str:
    """The user that created a WorkflowRun or an Operation, authenticated by the API server; empty if it is not known."""
    return str((obj["metadata"].get("annotations") or {}).get(labels.CREATED_BY_ANNOTATION, ""))


def reset_of(run: KubeObject) -> ResetOrigin | None:
    """Return the run that was reset to create a run; None if it was not created by a reset."""
    return read_annotation(run, labels.RESET_ANNOTATION, ResetOrigin)


def repeats(later: KubeObject, run: KubeObject) -> bool:
    """Whether a run resets or retries another one, or was created after it from the run that both reset or retry."""
    origin, own = reset_of(later), reset_of(run)
    if origin is None or later["metadata"]["uid"] == run["metadata"]["uid"]:
        return False
    if run["metadata"]["uid"] in {each.run_id for each in origin.lineage}:
        return True
    if own is None or origin.lineage[0].run_id != own.lineage[0].run_id:
        return False
    return bool(later["metadata"]["creationTimestamp"] > run["metadata"]["creationTimestamp"])


def first_run_id(run: KubeObject) -> str:
    """UID of the first run of a chain, which continuations, retries and resets extend."""
    before, reset = continuation_of(run), reset_of(run)
    if before is not None:
        return before.first_run_id
    return reset.lineage[0].run_id if reset is not None else str(run["metadata"]["uid"])


def run_object(
    namespace: str,
    name: str,
    spec: dict[str, Any],
    parent: Parent | None,
    continues: Continuation | None,
    labels_: Mapping[str, str] | None = None,
    *,
    extras: StartExtras | None = None,
) -> KubeObject:
    """A WorkflowRun with the annotations, labels and owners of its relations."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "labels": dict(labels_ or {}),
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


def spec_of(start: WorkflowStart) -> dict[str, Any]:
    """The spec of a WorkflowRun for a requested start."""
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


def same_spec(run: KubeObject) -> dict[str, Any]:
    """The spec of a run, for the next run of its workflow ID."""
    spec = {**run["spec"], "workflowId": run["spec"].get("workflowId") or run["metadata"]["name"]}
    spec.pop("startDelay", None)
    spec.pop("startPaused", None)
    return spec


def same_labels(run: KubeObject) -> dict[str, str]:
    """Return the labels of a run for the next run of its chain."""
    found = run["metadata"].get("labels") or {}
    return {key: value for key, value in found.items() if key != labels.PARENT_RUN_ID_LABEL}


_OWNERS = frozenset({"Schedule", "DeadLetter"})

_OF_OWNERS = (
    labels.SCHEDULED_BY_ANNOTATION,
    labels.SCHEDULE_TIMES_ANNOTATION,
    labels.DEAD_LETTER_ANNOTATION,
    labels.REQUEST_ANNOTATION,
)


def with_owners(successor: KubeObject, run: KubeObject) -> KubeObject:
    """The successor, owned by the Schedule or the DeadLetter that owns the previous run."""
    meta, new = run["metadata"], successor["metadata"]
    before = meta.get("annotations") or {}
    new["annotations"] |= {key: before[key] for key in _OF_OWNERS if key in before}
    owners = [owner for owner in meta.get("ownerReferences") or () if owner.get("kind") in _OWNERS]
    if owners:
        new["ownerReferences"] = [*(new.get("ownerReferences") or ()), *owners]
    return successor


_LARGEST_COEFFICIENT = 999_999.999999999


def retry_policy_json(policy: RetryPolicy) -> dict[str, Any]:
    """The inline form of a policy: a run keeps the recorded policy even if the RetryPolicy changes later."""
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


def _coefficient(value: float) -> str:
    """A coefficient in the form of the API: up to six digits before the point, up to nine after it, and no exponent.

    Fifteen digits survive a round trip. Temporal clients may send longer ones, which are rounded.
    """
    return f"{min(value, _LARGEST_COEFFICIENT):.9f}".rstrip("0").removesuffix(".")


def is_open(status: Mapping[str, Any]) -> bool:
    """Whether a run with this status is open, or has not started."""
    recorded: object = mapping(status.get("state")).get("status", RunStatus.RUNNING)
    return recorded == RunStatus.RUNNING


def inherited_priority(inherited: Any, priority: Any) -> Any:
    """A priority, as JSON, with inherited values for those that it does not set; None for no priority."""
    return {**(inherited or {}), **(priority or {})} or None


def child_run(
    parent: RunRef,
    child: PendingChild,
    depth: int = 1,
    priority: Any = None,
    versioning: Versioning = UNVERSIONED,
) -> KubeObject:
    """Build the WorkflowRun of a child to start. Its name is a lock.

    If the parent close policy is Terminate, the parent owns the child, so the child is also deleted with it.

    Args:
        parent: The run that starts the child.
        child: The child.
        depth: Number of ancestors of the child.
        priority: Priority of the parent, as JSON; the child inherits the values that it does not set.
        versioning: Versioning of the parent; the child inherits a pinned version.
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
    return run_object(parent.namespace, name, spec_of(child.start), tie, None, extras=extras)


def adopted(child: KubeObject, parent: RunRef) -> KubeObject:
    """The merge patch of the metadata that gives a child a new parent, after a reset of the old one.

    Args:
        child: The WorkflowRun of the child, with its previous parent.
        parent: The new parent.
    """
    before = parent_of(child)
    assert before is not None
    meta = child["metadata"]
    # A newer version may have added fields, which stay.
    tie = {
        **msgspec.json.decode(meta["annotations"][labels.PARENT_ANNOTATION]),
        "name": parent.name,
        "runId": parent.uid,
    }
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


def is_child(obj: KubeObject, parent: RunRef, child: PendingChild) -> bool:
    """Whether a WorkflowRun is this child, or a later run of its chain."""
    tie = parent_of(obj)
    return tie is not None and (tie.run_id, tie.initiated_event_id) == (parent.uid, child.initiated_event_id)


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
        remaining = min(SHORTEST_RUN - (closing.event_time - began), SHORTEST_RUN)
        backoff = remaining if remaining > timedelta(0) else None
        tie = msgspec.structs.replace(tie, signals=closing.signals, backoff=backoff, failure=closing.failure)
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
    carried = None
    if state.code is not None:
        override = state.code.versioning.inherited_override
        callbacks = tuple(each.callback for each in state.callbacks.values() if not each.update_id)
        carried = msgspec.structs.replace(
            extras,
            identity="",
            links=None,
            continued_failure=None,
            versioning_override=override,
            completion_callbacks=callbacks,
            eager_execution_accepted=False,
        )
    successor = run_object(
        meta["namespace"], state.successor, spec, parent_of(run), tie, same_labels(run), extras=carried
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


def reset_run(run: KubeObject, reset: ResetOrigin, name: str) -> KubeObject:
    """Build the WorkflowRun for a reset, with the same chain, parent, and spec as the run to reset.

    Args:
        run: The run to reset.
        reset: The history that the new run begins with.
        name: Name of the new run, which is a lock.
    """
    tie = continuation_of(run)
    namespace, user_labels = run["metadata"]["namespace"], same_labels(run)
    body = run_object(namespace, name, same_spec(run), parent_of(run), tie, user_labels, extras=extras_of(run))
    body["metadata"]["annotations"][labels.RESET_ANNOTATION] = msgspec.json.encode(reset).decode()
    return with_owners(body, run)
