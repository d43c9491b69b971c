"""The Kubernetes Event of an answered Operation."""

from perdure.api import labels
from perdure.api.reasons import EventReason
from perdure.controller.operations.operation_status import OperationAnswer, verb
from perdure.kube import client as kube
from perdure.kube.events import Recorder
from perdure.observe import metrics


def record_answer(recorder: Recorder, obj: kube.Object, outcome: OperationAnswer) -> None:
    """Emit an Event about the run that an Operation targets, or about the Operation if there is no run."""
    meta, name, answer, entry = obj["metadata"], verb(obj), outcome.answer, outcome.entry
    metrics.OPERATIONS.labels(verb=name, outcome="Complete" if answer.ok else "Failed").inc()
    itself = {"apiVersion": labels.API_VERSION, "kind": "Operation", "metadata": meta}
    run = entry and {"namespace": entry.namespace, "name": entry.name, "uid": entry.uid}
    about = {"apiVersion": labels.API_VERSION, "kind": "WorkflowRun", "metadata": run} if run else itself
    related = {"apiVersion": labels.API_VERSION, "kind": "Operation", "namespace": meta["namespace"]}
    related |= {"name": meta["name"], "uid": meta["uid"]}
    note = f"Operation {meta['name']}: {name}"
    recorder.record(
        about,
        kind="Warning" if outcome.is_warning else "Normal",
        reason=EventReason.OPERATION_DONE if answer.ok else EventReason.OPERATION_FAILED,
        note=note + (f": {answer.reason}: {outcome.message}" if outcome.is_warning else ""),
        action=f"{name[:1].upper()}{name[1:]}",
        related=related if run else None,
    )
