"""The status of an Operation, and its Event: the run that it targets, and the answer."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.api import labels
from perdure.api.json_values import mappings
from perdure.api.kinds.operation import REQUESTS, OperationStatus
from perdure.api.kinds.status import read_conditions, set_condition
from perdure.api.names import started_name
from perdure.api.phases import OperationPhase
from perdure.api.reasons import ConditionReason, ConditionType, EventReason
from perdure.api.rules import cel_name
from perdure.api.times import format_time
from perdure.controller.directory import Entry
from perdure.controller.reconcile.record import Status
from perdure.controller.state_versions import state_versions
from perdure.engine.inputs import Answer
from perdure.kube import client as kube
from perdure.kube.events import Recorder
from perdure.observe import metrics
from perdure.runtime.operation_requests import arrival


@dataclass(frozen=True, slots=True)
class OperationAnswer:
    """The answer to an Operation."""

    answer: Answer
    entry: Entry | None = None
    """The run that it targets; None for other targets, and if none was found."""
    result: dict[str, Any] | None = None
    """The result, if it is not the targeted run."""

    @property
    def is_warning(self) -> bool:
        """Whether the answer needs attention: the request failed, or the workflow never waits for the signal."""
        return not self.answer.ok or self.answer.reason == ConditionReason.SIGNAL_NOT_AWAITED

    @property
    def reason(self) -> ConditionReason:
        """The reason of the condition."""
        special = ConditionReason.SIGNAL_NOT_AWAITED, ConditionReason.DEFERRED
        if not self.answer.ok or self.answer.reason in special:
            return ConditionReason(self.answer.reason)
        return ConditionReason.DONE

    @property
    def message(self) -> str:
        """The message of the condition."""
        recorded = f"`{self.entry.name}` has recorded it" if self.answer.ok and self.entry is not None else ""
        return self.answer.message or recorded


def newer_part(obj: kube.Object) -> str:
    """Name the part of an Operation's status that only a newer version of the operator can read; empty if there is none."""
    return OperationStatus.newer_part(obj.get("status") or {}, state_versions().reads)


def running(obj: kube.Object, entry: Entry, now: datetime) -> Status:
    """The status of an Operation that targets a run; it is written before the request is delivered."""
    status = _unreported(obj)
    return {
        **status,
        "observedGeneration": obj["metadata"].get("generation"),
        "phase": OperationPhase.RUNNING.value,
        "verb": verb(obj),
        "arrival": arrival(obj),
        "workflowRun": entry.name,
        "runId": entry.uid,
        "startTime": status.get("startTime") or format_time(now),
    }


def finished(obj: kube.Object, outcome: OperationAnswer, now: datetime) -> Status:
    """The status of an Operation that was answered."""
    before, answer = _unreported(obj), outcome.answer
    kind = ConditionType.COMPLETE if answer.ok else ConditionType.FAILED
    generation = obj["metadata"].get("generation")
    conditions = set_condition(
        read_conditions(before), kind, True, outcome.reason, outcome.message, now=now, observed_generation=generation
    )
    status = {
        **before,
        "observedGeneration": generation,
        "phase": kind.value,
        "verb": verb(obj),
        "arrival": arrival(obj),
        "conditions": [condition.dump() for condition in conditions],
        "startTime": before.get("startTime") or format_time(now),
        "completionTime": format_time(now),
    }
    result = outcome.result or (_run_result(obj, outcome.entry) if outcome.entry is not None else None)
    return {**status, "result": {**(before.get("result") or {}), **result}} if answer.ok and result else status


def _unreported(obj: kube.Object) -> Status:
    """The status of an Operation without the report of an older operator that could not read it."""
    status = obj.get("status") or {}
    kept = [each for each in mappings(status.get("conditions")) if each.get("type") != ConditionType.NEWER_STATE]
    return {**status, "conditions": kept} if "conditions" in status else status


def _run_result(obj: kube.Object, entry: Entry) -> dict[str, Any]:
    result: dict[str, Any] = {"workflowRun": entry.name, "workflowId": entry.workflow_id, "runId": entry.uid}
    if "signalWithStart" in obj["spec"]:
        started = started_name(entry.workflow_id, obj["metadata"]["uid"])
        result["started"] = entry.name == started
    return result


def identity(obj: kube.Object) -> str:
    """The identity of the caller in the history of the run."""
    return f"operation/{obj['metadata']['name']}"


def verb(obj: kube.Object) -> str:
    """The request of an Operation, even if its spec is invalid."""
    return next((name for name in map(cel_name, REQUESTS) if name in obj["spec"]), "unknown")


def record_answer(recorder: Recorder, obj: kube.Object, outcome: OperationAnswer) -> None:
    """Emit an Event about the run that an Operation targets, or about the Operation if that run does not exist."""
    meta, name, answer, entry = obj["metadata"], verb(obj), outcome.answer, outcome.entry
    metrics.OPERATIONS.labels(verb=name, outcome="Complete" if answer.ok else "Failed").inc()
    itself = {"apiVersion": labels.API_VERSION, "kind": "Operation", "metadata": meta}
    run = entry and {"namespace": entry.namespace, "name": entry.name, "uid": entry.uid}
    about = {"apiVersion": labels.API_VERSION, "kind": "WorkflowRun", "metadata": run} if run else itself
    related = {"apiVersion": labels.API_VERSION, "kind": "Operation", "namespace": meta["namespace"]}
    related |= {"name": meta["name"], "uid": meta["uid"]}
    note, says_why = f"Operation {meta['name']}: {name}", outcome.reason is not ConditionReason.DONE
    recorder.record(
        about,
        kind="Warning" if outcome.is_warning else "Normal",
        reason=EventReason.OPERATION_DONE if answer.ok else EventReason.OPERATION_FAILED,
        note=note + (f": {outcome.reason}: {outcome.message}" if says_why else ""),
        action=f"{name[:1].upper()}{name[1:]}",
        related=related if run else None,
    )
