"""The request of an Operation to a run, converted from its manifest to an input of the engine. Pure."""

import dataclasses
from typing import Any, Final

import msgspec

from perdure.api import labels
from perdure.api.json_values import nests_deeper
from perdure.api.kinds.operation import CompleteActivity, OperationSpec, UpdateActivityOptions, UpdateOptions
from perdure.api.names import started_name
from perdure.api.stored import StoredStruct, read_annotation
from perdure.engine import inputs
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.versioning import DeploymentVersion, VersioningOverride
from perdure.runtime.attempts import KubeObject

MAX_PAYLOAD: Final = 128 * 1024
"""Maximum bytes of JSON that one Operation may pass to a run: a few larger ones would fill the run's status."""

_TIMEOUTS: Final = (
    "schedule_to_close_timeout",
    "schedule_to_start_timeout",
    "start_to_close_timeout",
    "heartbeat_timeout",
)

MAX_DEPTH: Final = 100
"""Maximum nesting of the JSON of an Operation: within the status of a run it is nested deeper, and must still be writable."""


class StartSignal(StoredStruct, frozen=True, kw_only=True):
    """The signal of a signal-with-start. It is stored on the run that it started, so neither exists without the other."""

    request_id: str
    """UID of the Operation, or the ID that a client chose."""
    signal_name: str
    input: Any = None
    identity: str = ""
    principal: str = ""
    header: Any = None
    client_request_id: str = ""
    """The `request_id` if a client of Temporal's API chose it."""
    links: Any = None

    @property
    def request(self) -> inputs.SignalRequested:
        """The signal as an input of the engine."""
        return inputs.SignalRequested(
            request_id=self.request_id,
            signal_name=self.signal_name,
            input=self.input,
            identity=self.identity,
            principal=self.principal,
            header=self.header,
            client_request_id=self.client_request_id,
            links=self.links,
        )


def request_of(spec: OperationSpec, uid: str, identity: str, principal: str = "") -> inputs.Request:
    """Convert a request to an input of the engine.

    Args:
        spec: The spec of the Operation; its request is not a reset.
        uid: UID of the Operation: the ID of the request, so that it is applied once.
        identity: The requester, for the history.
        principal: The user that created it, authenticated by the API server; empty if it is not known.

    Raises:
        ValueError: The engine does not accept the request.
    """
    if spec.complete_activity is not None:
        return dataclasses.replace(_answered(spec.complete_activity, uid), principal=principal)
    match spec.request:
        case "signal" | "signal_with_start":
            signal = spec.signal or spec.signal_with_start
            assert signal is not None
            return inputs.SignalRequested(
                request_id=uid, signal_name=signal.name, input=signal.input, identity=identity, principal=principal
            )
        case "terminate":
            assert spec.terminate is not None
            reason = {"reason": spec.terminate.reason, "details": spec.terminate.details}
            return inputs.TerminateRequested(request_id=uid, identity=identity, principal=principal, **reason)
        case "cancel" | "stop":
            end, stop = spec.cancel or spec.stop, spec.stop is not None
            assert end is not None
            return inputs.CancelRequested(
                request_id=uid, reason=end.reason, identity=identity, principal=principal, stop=stop
            )
        case "pause" | "unpause":
            pause = spec.pause or spec.unpause
            assert pause is not None
            kind = inputs.PauseRequested if spec.pause is not None else inputs.UnpauseRequested
            return kind(
                request_id=uid,
                activity_id=pause.step,
                activity_type=pause.activity_type,
                reason=pause.reason,
                identity=identity,
                principal=principal,
            )
        case "reset_activity":
            reset = spec.reset_activity
            assert reset is not None
            return inputs.ActivityReset(
                request_id=uid,
                activity_id=reset.step,
                activity_type=reset.activity_type,
                heartbeat=reset.reset_heartbeat,
                keep_paused=reset.keep_paused,
                restore=reset.restore_options,
            )
        case "update_activity_options":
            assert spec.update_activity_options is not None
            return _options_changed(spec.update_activity_options, uid)
        case "update_options":
            assert spec.update_options is not None
            override = override_of(spec.update_options)
            return inputs.OverrideChanged(request_id=uid, override=override, identity=identity, principal=principal)
        case _:
            raise ValueError(f"`{spec.request}` is not a request to a run")


def override_of(options: UpdateOptions) -> VersioningOverride | None:
    """The versioning override of a run after a change of its options; None: no override."""
    override = options.versioning_override
    if override is None:
        return None
    version = None
    if override.deployment_name is not None and override.build_id is not None:
        version = DeploymentVersion(deployment_name=override.deployment_name, build_id=override.build_id)
    return VersioningOverride(behavior=override.behavior.value, version=version)


def _options_changed(wanted: UpdateActivityOptions, uid: str) -> inputs.OptionsChanged:
    """The change of the options of activities. A timeout of zero is none."""
    timeouts = {name: getattr(wanted, name) for name in _TIMEOUTS}
    options = {name: timeout or None for name, timeout in timeouts.items() if timeout is not None}
    options |= {name: getattr(wanted, name) for name in ("task_queue", "priority") if getattr(wanted, name) is not None}
    retry = {name: value for name, value in wanted.retry_policy or () if value is not None}
    if "backoff_coefficient" in retry:
        retry["backoff_coefficient"] = float(retry["backoff_coefficient"])
    if "maximum_interval" in retry:
        retry["maximum_interval"] = retry["maximum_interval"] or None
    changes = None if wanted.restore else inputs.OptionChanges(options=options, retry_policy=retry)
    return inputs.OptionsChanged(
        request_id=uid, activity_id=wanted.step, activity_type=wanted.activity_type, options=changes
    )


def _answered(answer: CompleteActivity, uid: str) -> inputs.ActivityAnswered:
    if answer.failure is not None:
        failure = Failure(
            kind=FailureKind.APPLICATION,
            type=answer.failure.type,
            message=answer.failure.message,
            details=answer.failure.details,
            non_retryable=answer.failure.non_retryable,
        )
        return inputs.ActivityAnswered(request_id=uid, activity_id=answer.step, failure=failure)
    if answer.cancelled is not None:
        details = answer.cancelled.details
        return inputs.ActivityAnswered(request_id=uid, activity_id=answer.step, result=details, cancelled=True)
    assert answer.result is not None
    return inputs.ActivityAnswered(request_id=uid, activity_id=answer.step, result=answer.result.output)


def payload_of(request: inputs.Request) -> Any:
    """The payload that a request adds to the history of a run; None if it has none."""
    match request:
        case inputs.SignalRequested():
            return request.input
        case inputs.TerminateRequested():
            return request.details
        case inputs.ActivityAnswered():
            return request.failure.details if request.failure else request.result
        case inputs.OperationReported() | inputs.OperationEnded():
            return request.result
        case inputs.CallbacksAttached():
            return msgspec.to_builtins(request.callbacks)
        case _:
            return None


def too_much(request: inputs.Request) -> str | None:
    """Return why a request is too large for a run; None if its size is allowed."""
    payload = payload_of(request)
    if payload is None:
        return None
    if nests_deeper(payload, MAX_DEPTH):
        return f"its payload nests more than {MAX_DEPTH} levels deep"
    size = len(msgspec.json.encode(payload))
    if size <= MAX_PAYLOAD:
        return None
    return (
        f"its payload has {size // 1024} KiB, but the limit is {MAX_PAYLOAD // 1024} KiB: store the data elsewhere and pass a "
        "reference to it"
    )


def run_to_start(operation: KubeObject, signal: inputs.SignalRequested) -> KubeObject:
    """Build the WorkflowRun that a `signalWithStart` creates if none is open; its name is a lock.

    Args:
        operation: A valid Operation.
        signal: The signal. It is applied with the first event of the run, or never.
    """
    meta, spec = operation["metadata"], operation["spec"]
    workflow_id = spec["target"]["workflowId"]
    carried = StartSignal(
        request_id=signal.request_id,
        signal_name=signal.signal_name,
        input=signal.input,
        identity=signal.identity,
        principal=signal.principal,
    )
    created_by = {labels.CREATED_BY_ANNOTATION: signal.principal} if signal.principal else {}
    return {
        "apiVersion": labels.API_VERSION,
        "kind": "WorkflowRun",
        "metadata": {
            "name": started_name(workflow_id, meta["uid"]),
            "namespace": meta["namespace"],
            "annotations": {labels.START_SIGNAL_ANNOTATION: msgspec.json.encode(carried).decode(), **created_by},
        },
        "spec": {**spec["signalWithStart"]["start"], "workflowId": workflow_id},
    }


def start_signal_of(run: KubeObject) -> StartSignal | None:
    """Return the signal of the signal-with-start that started a run; None if there is none."""
    return read_annotation(run, labels.START_SIGNAL_ANNOTATION, StartSignal)


def arrival(operation: KubeObject) -> int:
    """The position of an Operation in the order of creation: resourceVersions are increasing numbers (KEP-5504)."""
    recorded = (operation.get("status") or {}).get("arrival")
    return int(operation["metadata"]["resourceVersion"] if recorded is None else recorded)
