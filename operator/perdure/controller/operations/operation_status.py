"""What the operator writes into an Operation: which run it asks, and what that has answered."""

from collections.abc import Mapping
from typing import Any

from perdure.api import labels
from perdure.api.conditions import read_conditions, set_condition
from perdure.api.fields import format_time
from perdure.api.names import started_name
from perdure.api.operation import REQUESTS, OperationPhase
from perdure.api.reasons import ConditionReason, ConditionType, EventReason
from perdure.api.rules import cel_name
from perdure.controller.directory import Entry
from perdure.engine.inputs import Answer
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.kube.events import Recorder
from perdure.observe import metrics
from perdure.runtime.requests import arrival


class Answers:
    """Writes the status of Operations, each time only if they are as they were read."""

    def __init__(self, client: kube.Client, recorder: Recorder) -> None:
        self._client = client
        self._recorder = recorder

    async def note(self, obj: kube.Object, entry: Entry) -> kube.Object:
        """Write down which run is asked; the Operation as it is then.

        Raises:
            NotFoundError, ConflictError: it was deleted, or has changed.
        """
        status = obj.get("status") or {}
        if status.get("runId") == entry.uid:
            return obj
        return await self._write(
            obj,
            {
                "phase": OperationPhase.RUNNING.value,
                "verb": _verb(obj),
                "arrival": arrival(obj),
                "workflowRun": entry.name,
                "runId": entry.uid,
                "startTime": status.get("startTime") or format_time(now()),
            },
        )

    async def finish(
        self, obj: kube.Object, answer: Answer, entry: Entry | None, result: dict[str, Any] | None = None
    ) -> kube.Object | None:
        """Write the answer, and tell of it; the Operation as it is then. None if it was answered already, or is gone.

        Args:
            obj: The Operation.
            answer: Whether it was done, and if not, why.
            entry: The run that was asked; None if there is none.
            result: What came of it, where that is another run than the one that was asked.

        Raises:
            TooLargeError: its spec leaves no room for an answer; an Event says what it is.
        """
        time = now()
        kind = ConditionType.COMPLETE if answer.ok else ConditionType.FAILED
        warned = answer.ok and answer.reason == ConditionReason.SIGNAL_NOT_AWAITED
        reason = ConditionReason.DONE if answer.ok and not warned else ConditionReason(answer.reason)
        message = answer.message or (f"`{entry.name}` has recorded it" if answer.ok and entry is not None else "")
        verb, place = _verb(obj), arrival(obj)
        while True:
            meta, before = obj["metadata"], obj.get("status") or {}
            conditions = read_conditions(before)
            generation = meta.get("generation")
            conditions = set_condition(
                conditions, kind, True, reason, message, now=time, observed_generation=generation
            )
            written: dict[str, Any] = {
                "phase": kind.value,
                "verb": verb,
                "arrival": place,
                "conditions": [condition.dump() for condition in conditions],
                "startTime": before.get("startTime") or format_time(time),
                "completionTime": format_time(time),
            }
            came = result or (_result(obj, entry) if entry is not None else None)
            if answer.ok and came:
                written["result"] = came
            try:
                obj = await self._write(obj, written)
                break
            except kube.ConflictError:
                found = await self._fresh(meta)
                if found is None:
                    return None
                obj = found
            except kube.NotFoundError:
                return None
            except kube.TooLargeError:
                self._tell(obj, verb, answer, message, entry)
                raise
        self._tell(obj, verb, answer, message, entry)
        return obj

    async def _fresh(self, meta: Mapping[str, Any]) -> kube.Object | None:
        """An Operation as it is now; None if it is gone, or was answered."""
        try:
            found = await self._client.get(kube.path(kube.PERDURE, meta["namespace"], "operations", meta["name"]))
        except kube.NotFoundError:
            return None
        over = found["metadata"]["uid"] != meta["uid"] or (found.get("status") or {}).get("completionTime")
        return None if over else found

    async def _write(self, obj: kube.Object, changes: dict[str, Any]) -> kube.Object:
        """Change the status, if the Operation is as it was read; the Operation as it is then.

        Raises:
            NotFoundError, ConflictError: it was deleted, or has changed.
        """
        meta = obj["metadata"]
        changes = {"observedGeneration": meta.get("generation"), **changes}
        url = kube.path(kube.PERDURE, meta["namespace"], "operations", meta["name"], "status")
        body = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": changes}
        written = await self._client.merge(url, body)
        return {**obj, "metadata": {**meta, **written["metadata"]}, "status": {**(obj.get("status") or {}), **changes}}

    def _tell(self, obj: kube.Object, verb: str, answer: Answer, message: str, entry: Entry | None) -> None:
        meta = obj["metadata"]
        metrics.OPERATIONS.labels(verb=verb, outcome="Complete" if answer.ok else "Failed").inc()
        itself = {"apiVersion": labels.API_VERSION, "kind": "Operation", "metadata": meta}
        run = entry and {"namespace": entry.namespace, "name": entry.name, "uid": entry.uid}
        about = {"apiVersion": labels.API_VERSION, "kind": "WorkflowRun", "metadata": run} if run else itself
        related = {"apiVersion": labels.API_VERSION, "kind": "Operation", "namespace": meta["namespace"]}
        related |= {"name": meta["name"], "uid": meta["uid"]}
        told = not answer.ok or answer.reason == ConditionReason.SIGNAL_NOT_AWAITED
        note = f"Operation {meta['name']}: {verb}" + (f": {answer.reason}: {message}" if told else "")
        self._recorder.record(
            about,
            kind="Warning" if told else "Normal",
            reason=EventReason.OPERATION_DONE if answer.ok else EventReason.OPERATION_FAILED,
            note=note,
            action=f"{verb[:1].upper()}{verb[1:]}",
            related=related if run else None,
        )


def _result(obj: kube.Object, entry: Entry) -> dict[str, Any]:
    result: dict[str, Any] = {"workflowRun": entry.name, "workflowId": entry.workflow_id, "runId": entry.uid}
    if "signalWithStart" in obj["spec"]:
        started = started_name(entry.workflow_id, obj["metadata"]["uid"])
        result["started"] = entry.name == started
    return result


def identity(obj: kube.Object) -> str:
    """Who asks, for the history of the run."""
    return f"operation/{obj['metadata']['name']}"


def _verb(obj: kube.Object) -> str:
    """What is asked, also of an Operation that cannot be read."""
    return next((name for name in map(cel_name, REQUESTS) if name in obj["spec"]), "unknown")
