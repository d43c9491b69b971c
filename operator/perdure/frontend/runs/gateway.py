"""The interface of the frontend's services to runs: find, read, request, and wait."""

from contextlib import suppress

from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Entry, Standing
from perdure.controller.manager import Manager
from perdure.controller.runs.run import Run
from perdure.engine import inputs
from perdure.engine.inputs import Answer
from perdure.engine.state import RunState
from perdure.frontend.errors import (
    CompletedError,
    RpcError,
    busy,
    damaged,
    invalid,
    not_found,
    precondition,
    unavailable,
)
from perdure.frontend.runs.changes import RunChanges
from perdure.frontend.runs.finder import RunFinder, gone, unreadable
from perdure.frontend.runs.reader import RunReader
from perdure.kube import client as kube


class RunGateway:
    """The runs of this operator."""

    def __init__(self, manager: Manager) -> None:
        self.manager = manager
        self.changes = RunChanges()
        self.finder = RunFinder(manager, self.changes)
        self.reader = RunReader(manager, self.changes)

    async def open_run(self, entry: Entry) -> Run:
        """Return a run that can process requests, even if it has closed.

        Raises:
            RpcError: The run was deleted, or the API server does not respond.
        """
        try:
            run = await self.manager.runs.find(entry)
        except kube.RequestError as error:
            raise unavailable(str(error)) from error
        if run is None:
            raise gone(entry)
        return run

    async def ask(self, entry: Entry, request: inputs.Request) -> Answer:
        """Pass a request to a run, and return its answer once the answer is recorded. A run that cannot be read rejects it."""
        answers: list[Answer] = []
        refused: Answer | None = None

        def answered(given: Answer) -> None:
            answers.append(given)
            self.changes.changed(entry.uid)

        def is_settled() -> bool:
            nonlocal refused
            refused = unreadable(self.manager, entry.uid)
            return bool(answers) or refused is not None

        with suppress(kube.RequestError):  # the queue then retries
            await self.manager.runs.find(entry)
        if not is_settled():  # otherwise, the request would be processed after a repair
            self.manager.runs.ask(entry, request, answered)
        await self.changes.wait_until(entry.uid, is_settled, None)
        if not answers and refused is not None:
            self.manager.runs.withdraw(entry.uid, request.request_id)
            return refused
        return answers[0]

    async def demand(self, entry: Entry, request: inputs.Request) -> Answer:
        """Pass a request to a run, which must accept it.

        Raises:
            RpcError: The run rejected the request; a CompletedError if it had already closed, even if that was requested.
        """
        answer = await self.ask(entry, request)
        if not answer.ok or answer.reason == inputs.CLOSED:
            raise refusal(answer)
        return answer

    def is_closed(self, run_id: str) -> bool:
        """Whether a run has closed or was deleted."""
        run = self.manager.runs.get(run_id)
        if run is not None and run.state is not None:
            return run.state.closed or run.gone
        entry = self.manager.directory.get(run_id)
        return entry is None or entry.standing is Standing.CLOSED


def not_open(state: RunState) -> RpcError:
    """Build the error for a request that requires an open standalone activity or Nexus operation."""
    return precondition(f"invalid transition from {'Canceled' if state.status == 'Cancelled' else state.status}")


def refusal(answer: Answer) -> RpcError:
    """The error for a client whose request a run rejected."""
    match answer.reason:
        case ConditionReason.TARGET_NOT_FOUND | inputs.CLOSED:
            return CompletedError()
        case ConditionReason.ACTIVITY_NOT_FOUND | "TaskNotFound":
            return not_found(answer.message)
        case inputs.CLOSING:
            return busy(answer.message)
        case ConditionReason.STATE_DAMAGED:
            return damaged(answer.message)
        case ConditionReason.NEWER_STATE:
            return unavailable(answer.message)
        case _:
            return invalid(answer.message)
