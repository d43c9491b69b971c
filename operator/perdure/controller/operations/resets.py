"""Resets and retries of runs that Operations request."""

from contextlib import suppress
from typing import Final

import msgspec

from perdure.api.kinds.operation import Reset, Retry
from perdure.api.kinds.status import read_conditions
from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Entry, Standing
from perdure.controller.dispatch.runs import WorkflowRuns
from perdure.controller.errors import RefusedError
from perdure.controller.operations.status import OperationAnswer, identity
from perdure.controller.operations.targets import Targets
from perdure.controller.runs.resets import name_of, reset
from perdure.controller.services import Services
from perdure.engine.inputs import Answer
from perdure.kube import client as kube
from perdure.runtime.chains import created_by

_ABOUT_TO_BEGIN: Final = frozenset({ConditionReason.WORKFLOW_ID_IN_USE, ConditionReason.COMPILING})
"""Why a run waits that starts without further action: the open run is about to close, or its definition is being compiled."""


class NewRun(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a reset or a retry, as in the status of its Operation."""

    name: str = msgspec.field(name="workflowRun")
    workflow_id: str
    run_id: str
    event_id: int
    """The last event that it takes over."""


class RunResets:
    """Creates the new run of a reset or a retry. The new run does the rest itself."""

    def __init__(self, services: Services, runs: WorkflowRuns, targets: Targets) -> None:
        self._client = services.client
        self._definitions = services.definitions
        self._runs = runs
        self._targets = targets

    async def reset(self, obj: kube.Object, wanted: Reset | Retry, entry: Entry) -> OperationAnswer:
        """Reset or retry a run, once for each Operation.

        Args:
            obj: The Operation.
            wanted: Its reset or retry.
            entry: The run that it targets.

        Returns:
            The answer to the Operation when the new run has begun.

        Raises:
            RefusedError: The run cannot be reset, or another run of its workflow ID is open.
            NotYetError: The definition is being compiled.
        """
        try:
            run = await self._client.get(_path(entry.namespace, entry.name))
        except kube.NotFoundError:
            raise RefusedError(ConditionReason.TARGET_NOT_FOUND, f"WorkflowRun `{entry.name}` was deleted") from None
        uid = obj["metadata"]["uid"]
        if isinstance(wanted, Retry):
            await self._check_alone(entry, name_of(entry.name, wanted, uid))
        new = await reset(
            self._client,
            self._definitions,
            run,
            wanted,
            request_id=uid,
            identity=identity(obj),
            principal=created_by(obj),
        )
        self._runs.add_created(new.object)
        text = _message(new.name, new.event_id, entry.name)
        if new.kept:
            text += f" and keeps {new.kept} later results"
        if new.left_out:
            text += f"; {new.left_out} more would be too large, so their activities run again"
        return _answer(NewRun(new.name, entry.workflow_id, new.run_id, new.event_id), text, entry)

    async def created(self, obj: kube.Object) -> OperationAnswer | None:
        """The answer to an Operation whose new run was created before this process took it up; None if it must be created.

        Args:
            obj: The Operation.

        Raises:
            RequestError: The new run could not be read.
        """
        status = obj.get("status") or {}
        if "result" not in status:
            return None
        new = msgspec.convert(status["result"], NewRun)
        with suppress(kube.NotFoundError):
            found = await self._client.get(_path(obj["metadata"]["namespace"], new.name))
            if found["metadata"]["uid"] == new.run_id:
                self._runs.add_created(found)  # a watch may not have shown it yet
        base = self._runs.directory.get(status["runId"])
        return _answer(new, _message(new.name, new.event_id, status["workflowRun"]), base)

    async def has_begun(self, run_id: str) -> bool:
        """Whether a new run does not wait for the open run of its workflow ID anymore.

        Then it has started, was deleted, or waits for something else, for example for a WorkflowLimit.

        Args:
            run_id: UID of the new run.

        Raises:
            RequestError: The run could not be read.
        """
        entry = self._runs.directory.get(run_id)
        if entry is None or entry.standing is not Standing.WAITING:
            return True
        try:
            run = await self._client.get(_path(entry.namespace, entry.name))
        except kube.NotFoundError:
            run = None
        if run is None or run["metadata"]["uid"] != run_id:
            self._runs.delete_missed(entry)
            return True
        reasons = {condition.reason for condition in read_conditions(run.get("status") or {})}
        return bool(reasons) and not reasons & _ABOUT_TO_BEGIN

    async def _check_alone(self, entry: Entry, own: str) -> None:
        """Check that no other run of the workflow ID is open, because a retry does not close other runs.

        Raises:
            RefusedError: Another run is open.
        """
        await self._targets.read_runs(entry.namespace, entry.workflow_id)
        other = self._runs.directory.open_run(entry.namespace, entry.workflow_id)
        if other is not None and other.name not in {entry.name, own}:
            message = f"the run `{other.name}` with workflow ID `{entry.workflow_id}` is open; wait for its end, or terminate it"
            raise RefusedError(ConditionReason.WORKFLOW_ID_IN_USE, message)


def _path(namespace: str, name: str) -> str:
    return kube.path(kube.PERDURE, namespace, "workflowruns", name)


def _message(new: str, event_id: int, base: str) -> str:
    return f"`{new}` continues from event {event_id} of `{base}`"


def _answer(new: NewRun, message: str, base: Entry | None) -> OperationAnswer:
    return OperationAnswer(Answer(ok=True, message=message), base, msgspec.to_builtins(new))
