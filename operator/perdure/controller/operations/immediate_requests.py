"""Operations that need no run to process them: resets, retries, re-drives, and requests to Schedules."""

from dataclasses import dataclass
from typing import Any

from perdure.api.operation import OperationSpec, Reset, Retry, TargetKind
from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Entry
from perdure.controller.errors import RefusedError
from perdure.controller.informers.schedules import Schedules
from perdure.controller.informers.workflowruns import WorkflowRuns
from perdure.controller.operations.operation_status import Answers, identity
from perdure.controller.operations.targets import HoldError, Targets
from perdure.controller.runs.resets import name_of, reset
from perdure.controller.tools import Tools
from perdure.engine.inputs import Answer
from perdure.kube import client as kube
from perdure.runtime.chains import created_by
from perdure.schedule.requests import request_of as schedule_request


@dataclass(frozen=True, slots=True)
class Answered:
    """An Operation that was processed, and its answer."""

    obj: kube.Object
    answer: Answer
    entry: Entry | None
    """The run that it targets; None for other targets."""
    result: dict[str, Any] | None


class ImmediateRequests:
    """Processes the Operations that are answered immediately."""

    def __init__(
        self, tools: Tools, runs: WorkflowRuns, schedules: Schedules, targets: Targets, answers: Answers
    ) -> None:
        """Nothing is processed yet.

        Args:
            tools: The Kubernetes API, DeadLetters and definitions.
            runs: The runs that can be reset.
            schedules: The Schedules that take requests.
            targets: Finds the run that an Operation targets.
            answers: Records the targeted run in the Operation.
        """
        self._client = tools.client
        self._letters = tools.letters
        self._definitions = tools.definitions
        self._runs = runs
        self._schedules = schedules
        self._targets = targets
        self._answers = answers

    async def process(self, obj: kube.Object, spec: OperationSpec, before: str) -> Answered | None:
        """Process an Operation; None if it is a request that a run has to process.

        Args:
            obj: The Operation.
            spec: Its spec.
            before: The ID of the run that earlier Operations wait for; empty if none does.

        Raises:
            RefusedError: the request cannot be fulfilled.
            NotFoundError, ConflictError: the Operation was deleted, or has changed.
            HoldError: earlier Operations must be answered first.
        """
        if spec.target.kind is TargetKind.SCHEDULE:
            return await self._ask_schedule(obj, spec)
        if spec.target.kind is TargetKind.DEAD_LETTER:
            return await self._redrive(obj)
        if (again := spec.reset or spec.retry) is not None:
            return await self._reset(obj, again, before)
        return None

    async def _reset(self, obj: kube.Object, wanted: Reset | Retry, before: str) -> Answered:
        """Reset or retry a run: create the new run, which does the rest itself.

        Raises:
            RefusedError: it cannot be.
            NotFoundError, ConflictError: the Operation was deleted, or has changed.
            HoldError: what was asked before has to be answered first.
        """
        if before:
            raise HoldError(until_answered=True)
        entry = await self._targets.find(obj, None, again=False)
        obj = await self._answers.note(obj, entry)
        try:
            run = await self._client.get(kube.path(kube.PERDURE, entry.namespace, "workflowruns", entry.name))
        except kube.NotFoundError:
            raise RefusedError(ConditionReason.TARGET_NOT_FOUND, f"WorkflowRun `{entry.name}` was deleted") from None
        uid = obj["metadata"]["uid"]
        if isinstance(wanted, Retry):
            await self._check_alone(entry, name_of(entry.name, wanted, uid))
        who = {"identity": identity(obj), "principal": created_by(obj)}
        made = await reset(self._client, self._definitions, run, wanted, request_id=uid, **who)
        message = f"`{made.name}` goes on from event {made.event_id} of `{entry.name}`"
        if made.kept:
            message += f" and keeps {made.kept} later results"
        if made.left_out:
            message += f"; {made.left_out} more are too large together, and their activities are done again"
        result = {"workflowRun": made.name, "workflowId": entry.workflow_id, "runId": made.run_id}
        done = Answer(ok=True, message=message)
        return Answered(obj, done, entry, {**result, "eventId": made.event_id})

    async def _check_alone(self, entry: Entry, own: str) -> None:
        """Make sure that no other run of the workflow id is open: a retry ends nobody else.

        Raises:
            RefusedError: one is.
        """
        await self._targets.look(entry.namespace, entry.workflow_id)
        other = self._runs.directory.open_run(entry.namespace, entry.workflow_id)
        if other is not None and other.name not in {entry.name, own}:
            message = (
                f"the run `{other.name}` of workflow id `{entry.workflow_id}` is open; wait for its end, or end it"
            )
            raise RefusedError(ConditionReason.WORKFLOW_ID_IN_USE, message)

    async def _ask_schedule(self, obj: kube.Object, spec: OperationSpec) -> Answered:
        """Send the request to a Schedule, which processes each UID once, and return its answer."""
        meta, name = obj["metadata"], spec.target.name
        assert name is not None
        answer = await self._schedules.ask(meta["namespace"], name, schedule_request(spec, meta["uid"]))
        given = Answer(ok=answer.ok, reason=answer.reason, message=answer.message)
        return Answered(obj, given, None, answer.result or None)

    async def _redrive(self, obj: kube.Object) -> Answered:
        """Re-drive a DeadLetter. The run records the UID, so a repeated request starts no second run.

        Raises:
            RefusedError: it cannot be.
        """
        run = await self._letters.redrive(
            obj["metadata"]["namespace"], obj["spec"]["target"]["name"], obj["metadata"]["uid"]
        )
        done = Answer(ok=True, message=f"it runs as WorkflowRun `{run}`")
        return Answered(obj, done, None, {"workflowRun": run})
