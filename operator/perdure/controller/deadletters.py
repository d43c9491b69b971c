"""DeadLetters: re-driven when an Operation asks for it, and told what came of that.

    Operation ─▶ a run of one step ─▶ the Operation is answered ─▶ the run closes ─▶ the DeadLetter's status tells
                   └ killed here: it is found by the Operation's UID ┘

The name of the run is a lock: of two Operations at once, one starts it, and the other is told so.
"""

from typing import Any

from perdure.api import labels
from perdure.api.common import API_VERSION
from perdure.api.conditions import set_condition
from perdure.api.fields import format_time
from perdure.api.reasons import ConditionReason, ConditionType, EventReason
from perdure.kube import client as api
from perdure.kube.clock import now as wall_clock
from perdure.kube.events import Recorder
from perdure.observe import metrics
from perdure.runtime.deadletters import asked_by, letter_status, redrive_run, refusal


class DeadLetters:
    """The DeadLetters of all namespaces that this operator watches."""

    def __init__(self, client: api.Client, recorder: Recorder) -> None:
        self._client = client
        self._recorder = recorder

    # Re-driving

    async def answer(self, namespace: str, name: str) -> None:
        """Do what an Operation on a DeadLetter asks for, and answer it; once, whatever happens in between.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server did not do its part; to be called again.
        """
        url = api.path(api.PERDURE, namespace, "operations", name)
        try:
            operation = await self._client.get(url)
        except api.NotFoundError:
            return
        if not asks_for_redrive(operation) or is_answered(operation):
            return
        problem, run = await self._redrive(namespace, operation)
        time = wall_clock()
        kind = ConditionType.FAILED if problem else ConditionType.COMPLETE
        reason, message = problem or (ConditionReason.DONE, f"it runs as WorkflowRun `{run}`")
        generation = operation["metadata"].get("generation", 1)
        conditions = set_condition([], kind, True, reason, message, now=time, observed_generation=generation)
        status: dict[str, Any] = {
            "observedGeneration": generation,
            "phase": kind.value,
            "conditions": [condition.dump() for condition in conditions],
            "completionTime": format_time(time),
        }
        if run:
            status["result"] = {"workflowRun": run}
        try:
            await self._write(f"{url}/status", operation, status)
        except api.ConflictError:
            await self.answer(namespace, name)

    async def _redrive(
        self, namespace: str, operation: api.Object
    ) -> tuple[tuple[ConditionReason, str] | None, str | None]:
        """Start the run that an Operation asks for: why it cannot be, or its name."""
        target, request_id = operation["spec"]["target"]["name"], operation["metadata"]["uid"]
        seen = await self.reconcile(namespace, target)
        if seen is None:
            message = f"there is no DeadLetter `{target}` in namespace `{namespace}`"
            return (ConditionReason.TARGET_NOT_FOUND, message), None
        letter, runs = seen
        earlier = next((run for run in runs if asked_by(run) == request_id), None)
        if earlier is not None:  # an earlier try has come that far
            return None, earlier["metadata"]["name"]
        body = redrive_run(letter, request_id)
        problem = refusal(letter)
        if problem is not None or body is None:
            return problem, None
        name, url = body["metadata"]["name"], api.path(api.PERDURE, namespace, "workflowruns")
        try:
            await self._client.create(url, body)
        except api.AlreadyExistsError:
            message = f"another Operation has started WorkflowRun `{name}` for it just now"
            return (ConditionReason.REDRIVE_RUNNING, message), None
        except (api.InvalidError, api.TooLargeError) as error:
            return (ConditionReason.INVALID_SPEC, f"the run that would do it again is refused: {error.message}"), None
        metrics.REDRIVES.inc()
        about = {"apiVersion": API_VERSION, "kind": "DeadLetter", "metadata": letter["metadata"]}
        note = f"Runs again as WorkflowRun {name}"
        self._recorder.record(about, kind="Normal", reason=EventReason.REDRIVEN.value, note=note, action="Redrive")
        await self.reconcile(namespace, target)
        return None, name

    # What their status tells

    async def reconcile(self, namespace: str, name: str) -> tuple[api.Object, list[api.Object]] | None:
        """Have the status of a DeadLetter say what has become of the runs that re-drive it.

        Returns:
            The DeadLetter with that status, and those runs; None where it is gone.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server did not do its part; to be called again.
        """
        url = api.path(api.PERDURE, namespace, "deadletters", name)
        while True:
            try:
                letter = await self._client.get(url)
            except api.NotFoundError:
                return None
            runs = await self._client.list_all(
                api.path(api.PERDURE, namespace, "workflowruns"),
                labelSelector=f"{labels.DEAD_LETTER_LABEL}={letter['metadata']['uid']}",
            )
            status = letter_status(letter, runs, wall_clock())
            if status == (letter.get("status") or {}):
                return letter, runs
            try:
                await self._write(f"{url}/status", letter, status)
            except api.ConflictError:
                continue
            return {**letter, "status": status}, runs

    async def _write(self, url: str, obj: api.Object, status: dict[str, Any]) -> None:
        """Replace a status, if nobody has written since the object was read.

        Raises:
            ConflictError: somebody has, or has deleted it.
        """
        operations = [
            {"op": "replace", "path": "/metadata/resourceVersion", "value": obj["metadata"]["resourceVersion"]},
            {"op": "add", "path": "/status", "value": status},
        ]
        try:
            await self._client.patch(url, operations)
        except api.NotFoundError as error:
            raise api.ConflictError(error.status, error.reason, error.message) from error


def asks_for_redrive(operation: api.Object) -> bool:
    """Whether an Operation asks to re-drive a DeadLetter."""
    return "redrive" in operation["spec"]


def is_answered(operation: api.Object) -> bool:
    """Whether an Operation has its answer."""
    return "completionTime" in (operation.get("status") or {})
