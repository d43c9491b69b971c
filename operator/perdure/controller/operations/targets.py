"""The run that an Operation targets: found by name or workflow ID, started, or created by a reset or retry."""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec

from perdure.api.kinds.operation import Reset, Retry
from perdure.api.kinds.status import read_conditions
from perdure.api.phases import Phase
from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Entry, Standing, entry_of
from perdure.controller.dispatch.runs import WorkflowRuns
from perdure.controller.errors import RefusedError
from perdure.controller.operations.status import OperationAnswer, identity
from perdure.controller.runs.resets import name_of, reset
from perdure.controller.services import Services
from perdure.engine import inputs
from perdure.engine.inputs import Answer
from perdure.engine.versioning import VersioningOverride
from perdure.kube import client as kube
from perdure.kube.paths import escaped
from perdure.runtime.chains import created_by, repeats
from perdure.runtime.operation_requests import override_of, run_to_start, start_signal_of

_CLOSED = ConditionReason.WORKFLOW_EXECUTION_COMPLETED
_NOT_FOUND = ConditionReason.TARGET_NOT_FOUND
_CLOCK_SKEW: Final = timedelta(seconds=10)
"""By how much the clocks of API servers may differ, which set the times of creation."""


class HoldError(Exception):
    """An Operation and later ones for the same target must wait."""

    def __init__(self, *, until_answered: bool) -> None:
        """`until_answered`: whether earlier Operations must be answered first; otherwise it is retried soon."""
        super().__init__()
        self.until_answered = until_answered


def check_age(operation: kube.Object, target: str, created: str) -> None:
    """Check that the target of an Operation existed when the Operation was created.

    Without this, an Operation that waited for an operator would act on another object, which was created with the name of a
    deleted one.

    Args:
        operation: The Operation.
        target: The target, for messages.
        created: The time of the target's creation.

    Raises:
        RefusedError: The target is newer.
    """
    asked = datetime.fromisoformat(operation["metadata"]["creationTimestamp"])
    if created and datetime.fromisoformat(created) > asked + _CLOCK_SKEW:
        message = f"{target} was created after this Operation, which was for an earlier one with that name"
        raise RefusedError(_NOT_FOUND, message)


class Targets:
    """Finds the runs that Operations target."""

    def __init__(self, client: kube.Client, runs: WorkflowRuns) -> None:
        self._client = client
        self._runs = runs

    async def find(self, obj: kube.Object, request: inputs.Request | None, *, again: bool) -> Entry:
        """Find the run that an Operation targets.

        Raises:
            RefusedError: The run does not exist.
            HoldError: The run is about to be created.
        """
        namespace, target, status = obj["metadata"]["namespace"], obj["spec"]["target"], obj.get("status") or {}
        if status.get("runId") and not again:
            entry = await self._named(namespace, status["workflowRun"])
            if entry is None or entry.uid != status["runId"]:
                raise RefusedError(_NOT_FOUND, f"WorkflowRun `{status['workflowRun']}` was deleted before it responded")
            return entry
        if "name" in target:
            entry = await self._named(namespace, target["name"])
            if entry is None:
                raise RefusedError(_NOT_FOUND, f"there is no WorkflowRun `{target['name']}` in namespace `{namespace}`")
            check_age(obj, f"WorkflowRun `{entry.name}`", entry.created)
            return entry
        return await self._of_workflow(obj, target["workflowId"], request, again=again)

    async def _of_workflow(
        self, obj: kube.Object, workflow_id: str, request: inputs.Request | None, *, again: bool
    ) -> Entry:
        """The open run of a workflow ID; otherwise the newest closed run, which answers that it is closed."""
        namespace, directory = obj["metadata"]["namespace"], self._runs.directory
        if directory.open_run(namespace, workflow_id) is None:
            await self.read_runs(namespace, workflow_id)
        entry = directory.open_run(namespace, workflow_id)
        if entry is not None:
            return entry
        known = directory.runs_of(namespace, workflow_id)
        if any(each.successor for each in known):
            raise HoldError(until_answered=False)  # the next run of the chain is about to be created
        if isinstance(request, inputs.SignalRequested) and "signalWithStart" in obj["spec"]:
            return await self._start(obj, request, again=again)
        newest = max(known, key=lambda each: (each.closed, each.uid), default=None)
        if newest is None:
            message = f"there is no run with workflow ID `{workflow_id}` in namespace `{namespace}`"
            raise RefusedError(_NOT_FOUND, message)
        return newest

    async def _start(self, obj: kube.Object, signal: inputs.SignalRequested, *, again: bool) -> Entry:
        """Create the run of a `signalWithStart`, unless it exists."""
        namespace, body = obj["metadata"]["namespace"], run_to_start(obj, signal)
        name = body["metadata"]["name"]
        try:
            run = await self._client.create(kube.path(kube.PERDURE, namespace, "workflowruns"), body)
        except kube.AlreadyExistsError:
            run = None
        except (kube.InvalidError, kube.TooLargeError) as error:
            raise RefusedError(ConditionReason.INVALID_SPEC, f"the run cannot be started: {error.message}") from error
        if run is not None:
            self._runs.update(run)
            return entry_of(run)
        try:
            run = await self._client.get(kube.path(kube.PERDURE, namespace, "workflowruns", name))
        except kube.NotFoundError:
            raise HoldError(until_answered=False) from None
        signal_of = start_signal_of(run)
        if signal_of is None or signal_of.request_id != signal.request_id:
            raise RefusedError(
                ConditionReason.WORKFLOW_ID_IN_USE,
                f"WorkflowRun `{name}` already exists and was not created for this request",
            )
        if again:
            failure = (run.get("status") or {}).get("failure") or {}
            raise RefusedError(_CLOSED, f"`{name}`, started for this request, has closed: {failure.get('message', '')}")
        return entry_of(run)

    async def _named(self, namespace: str, name: str) -> Entry | None:
        try:
            return entry_of(await self._client.get(kube.path(kube.PERDURE, namespace, "workflowruns", name)))
        except (kube.NotFoundError, ValueError):
            return None

    async def read_runs(self, namespace: str, workflow_id: str) -> None:
        """Read the runs of a workflow ID, because watches may lag. A run without a workflow ID has its name as the ID."""
        url = kube.path(kube.PERDURE, namespace, "workflowruns")
        async for found in self._client.lists.each(url, fieldSelector=f"spec.workflowId={escaped(workflow_id)}"):
            self._runs.update(found)
        try:
            found = await self._client.get(kube.path(kube.PERDURE, namespace, "workflowruns", workflow_id))
        except (kube.NotFoundError, ValueError):
            return
        self._runs.update(found)

    def continues(self, obj: kube.Object, entry: Entry) -> bool:
        """Whether another run of the workflow ID exists or will exist."""
        return "signalWithStart" in obj["spec"] or self._runs.directory.continues(entry)


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
            overrides=_overrides(wanted),
            identity=identity(obj),
            principal=created_by(obj),
        )
        self._runs.add_created(new.object)
        text = _message(new.name, new.event_id, entry.name)
        if new.kept:
            text += f" and keeps {new.kept} later {'result' if new.kept == 1 else 'results'}"
        if new.left_out:
            text += f"; {new.left_out} more would be too large, so their activities run again"
        if isinstance(wanted, Retry) and not wanted.from_ and (earlier := await self._completed_retry(entry, run)):
            text += f"; `{earlier}`, an earlier retry of it, has completed, so its steps run once more"
        return _answer(NewRun(new.name, entry.workflow_id, new.run_id, new.event_id), text, entry)

    async def _completed_retry(self, entry: Entry, run: kube.Object) -> str:
        """The name of a completed run that repeats a run; empty if there is none."""
        for other in self._runs.directory.sharing(entry):
            if other.phase != Phase.COMPLETED or other.closed < entry.closed:
                continue
            with suppress(kube.NotFoundError):
                if repeats(await self._client.get(_path(other.namespace, other.name)), run):
                    return other.name
        return ""

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

    async def _check_alone(self, entry: Entry, new_name: str) -> None:
        """Check that no other run of the workflow ID is open, because a retry does not close other runs.

        Raises:
            RefusedError: Another run is open.
        """
        await self._targets.read_runs(entry.namespace, entry.workflow_id)
        other = self._runs.directory.open_run(entry.namespace, entry.workflow_id)
        if other is not None and other.name not in {entry.name, new_name}:
            message = f"the run `{other.name}` with workflow ID `{entry.workflow_id}` is open; wait for its end, or terminate it"
            raise RefusedError(ConditionReason.WORKFLOW_ID_IN_USE, message)


def _overrides(wanted: Reset | Retry) -> tuple[VersioningOverride | None, ...]:
    """The changes of the versioning override of the new run."""
    options = wanted.update_options if isinstance(wanted, Reset) else None
    return () if options is None else (override_of(options),)


def _path(namespace: str, name: str) -> str:
    return kube.path(kube.PERDURE, namespace, "workflowruns", name)


def _message(new: str, event_id: int, base: str) -> str:
    return f"`{new}` continues from event {event_id} of `{base}`"


def _answer(new: NewRun, message: str, base: Entry | None) -> OperationAnswer:
    return OperationAnswer(Answer(ok=True, message=message), base, msgspec.to_builtins(new))
