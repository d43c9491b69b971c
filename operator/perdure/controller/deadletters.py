"""DeadLetters: re-drive them when an Operation requests it, and show the outcome in their status.

    Operation ─▶ a run of one step ─▶ the Operation is answered ─▶ the run closes ─▶ the DeadLetter's status shows it
                   └ killed here: the run is found by the Operation's UID ┘

The name of the run is a lock: of two Operations, one starts it, and the other reports that. The name of an unrelated run is
not used.
"""

from collections.abc import Callable
from typing import Final

from perdure.api import labels
from perdure.api.kinds.deadletter import DeadLetterSpec, DeadLetterStatus
from perdure.api.labels import API_VERSION
from perdure.api.models import json_fields
from perdure.api.names import redrive_name
from perdure.api.reasons import ConditionReason, EventReason
from perdure.api.state_versions import unknown_in
from perdure.controller.errors import RefusedError
from perdure.controller.reconcile.newer_states import message_for
from perdure.controller.reconcile.record import write_status
from perdure.controller.recorded_state import distrust
from perdure.controller.state_versions import state_versions
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.kube.events import Recorder
from perdure.observe import metrics
from perdure.runtime.commits import OF_RUNS, edited
from perdure.runtime.deadletters import (
    dead_letter_status,
    newest_of,
    next_number,
    redrive_run,
    redrives,
    refusal,
    requested_by,
    tie_of,
)

_NUMBERS_TRIED: Final = 10


class DeadLetters:
    """The DeadLetters of all namespaces that this operator watches."""

    suspect: Callable[[kube.Object], None] = staticmethod(lambda _: None)
    """Called with a run whose status was edited: the edit is reported, and the DeadLetter is reconciled once it is undone."""

    def __init__(self, client: kube.Client, recorder: Recorder) -> None:
        self._client = client
        self._recorder = recorder

    # Re-driving

    async def redrive(self, namespace: str, name: str, request_id: str) -> str:
        """Start the run that repeats the activity of a DeadLetter, exactly once for each request.

        Args:
            namespace: Namespace of the DeadLetter.
            name: Name of the DeadLetter.
            request_id: UID of the Operation that requests it.

        Returns:
            Name of the run.

        Raises:
            RefusedError: The DeadLetter cannot be re-driven.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        known = await self.reconcile(namespace, name)
        if known is None:
            raise RefusedError(
                ConditionReason.TARGET_NOT_FOUND, f"there is no DeadLetter `{name}` in namespace `{namespace}`"
            )
        letter, runs = known
        why = DeadLetterStatus.newer_part(letter.get("status") or {}, state_versions().reads)
        if why := why or unknown_in(letter["spec"], json_fields(DeadLetterSpec)):
            raise RefusedError(ConditionReason.NEWER_STATE, message_for(why))
        earlier = next((run for run in runs if requested_by(run) == request_id), None)
        if earlier is not None:  # an earlier attempt created the run
            return str(earlier["metadata"]["name"])
        problem = refusal(letter)
        if problem is not None:
            raise RefusedError(*problem)
        run = await self._start(letter, request_id)
        metrics.REDRIVES.inc()
        about = {"apiVersion": API_VERSION, "kind": "DeadLetter", "metadata": letter["metadata"]}
        note = f"Runs again as WorkflowRun {run}"
        self._recorder.record(about, kind="Normal", reason=EventReason.REDRIVEN, note=note, action="Redrive")
        await self.reconcile(namespace, name)
        return run

    async def _start(self, letter: kube.Object, request_id: str) -> str:
        """Create the run with the first free number, and return its name."""
        namespace, first = letter["metadata"]["namespace"], next_number(letter)
        for number in range(first, first + _NUMBERS_TRIED):
            body = redrive_run(letter, request_id, number)
            run = str(body["metadata"]["name"])
            try:
                await self._client.create(kube.path(kube.PERDURE, namespace, "workflowruns"), body)
            except kube.AlreadyExistsError:
                if await self._is_ours(letter, run):
                    message = f"another Operation has just started WorkflowRun `{run}` for it"
                    raise RefusedError(ConditionReason.REDRIVE_RUNNING, message) from None
            except (kube.InvalidError, kube.TooLargeError) as error:
                message = f"the API server rejects the run for the re-drive: {error.message}"
                raise RefusedError(ConditionReason.INVALID_SPEC, message) from error
            else:
                return run
        last = redrive_name(letter["metadata"]["name"], first + _NUMBERS_TRIED - 1)
        message = (
            f"the next {_NUMBERS_TRIED} names, up to `{last}`, are taken by other WorkflowRuns; delete one of them"
        )
        raise RefusedError(ConditionReason.WORKFLOW_ID_IN_USE, message)

    async def _is_ours(self, letter: kube.Object, name: str) -> bool:
        url = kube.path(kube.PERDURE, letter["metadata"]["namespace"], "workflowruns", name)
        try:
            return redrives(await self._client.get(url), letter)
        except kube.NotFoundError:
            return False  # the run existed but was deleted

    # Status

    async def _runs(self, letter: kube.Object) -> list[kube.Object]:
        """The runs that re-drive a DeadLetter. Only the newest is complete, because there may be many large ones."""
        url = kube.path(kube.PERDURE, letter["metadata"]["namespace"], "workflowruns")
        selector = f"{labels.DEAD_LETTER_LABEL}={letter['metadata']['uid']}"
        runs = [tie_of(run) async for run in self._client.lists.each(url, labelSelector=selector)]
        newest = newest_of(runs)
        if newest is None:
            return runs
        try:
            complete = await self._client.get(f"{url}/{newest['metadata']['name']}")
        except kube.NotFoundError:
            return [run for run in runs if run is not newest]
        return [complete if run is newest else run for run in runs]

    async def reconcile(self, namespace: str, name: str) -> tuple[kube.Object, list[kube.Object]] | None:
        """Update the status of a DeadLetter with the outcome of the runs that re-drive it.

        Returns:
            The DeadLetter with its new status, and the runs; None if the DeadLetter was deleted.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        runs: list[kube.Object] = []

        async def compute(letter: kube.Object) -> kube.Object | None:
            if DeadLetterStatus.newer_part(letter.get("status") or {}, state_versions().reads):
                return None
            runs[:] = await self._runs(letter)
            for run in runs:
                if edited(run.get("status") or {}, OF_RUNS):
                    self.suspect(run)
            status = dead_letter_status(letter, list(map(_as_known, runs)), wall_clock())
            return state_versions().stamp(status, letter.get("status"))

        letter = await write_status(self._client, kube.path(kube.PERDURE, namespace, "deadletters", name), compute)
        return None if letter is None else (letter, runs)


def _as_known(run: kube.Object) -> kube.Object:
    """A run that re-drives a DeadLetter; it counts as open if only a newer version can read how it ended."""
    is_newer = not edited(run.get("status") or {}, OF_RUNS) and bool(distrust(run))
    return {**run, "status": {}} if is_newer else run
