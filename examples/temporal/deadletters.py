"""A dead-letter queue as code: a workflow that stores failed work until someone requests that it runs again."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError


@dataclass
class Letter:
    """Work that has failed: an activity, its input, and why it failed."""

    name: str
    activity: str
    payload: Any
    reason: str


@activity.defn
async def set_aside(letter: Letter) -> None:
    """Send a letter to the workflow that stores them, and start it if it is not open: signal with start."""
    queue = activity.info().task_queue
    await activity.client().start_workflow(
        DeadLettersWorkflow.run,
        [],
        id=f"{queue}-dead-letters",
        task_queue=queue,
        start_signal="put",
        start_signal_args=[letter],
    )


@workflow.defn
class DeadLettersWorkflow:
    """Stores letters by their names, so that a repeated letter is stored once."""

    @workflow.init
    def __init__(self, letters: list[Letter]) -> None:
        """The letters of the previous run."""
        self.letters = {letter.name: letter for letter in letters}
        self.wanted: list[str] = []

    @workflow.run
    async def run(self, letters: list[Letter]) -> None:  # noqa: ARG002 (the constructor has them)
        """Run the requested work again; continue as new when the history is long."""
        while True:
            await workflow.wait_condition(lambda: bool(self.wanted) or workflow.info().is_continue_as_new_suggested())
            if not self.wanted:
                workflow.continue_as_new([list(self.letters.values())])
            await self.drive(self.wanted.pop(0))

    async def drive(self, name: str) -> None:
        """Run the work of a letter; the letter stays if the work fails again."""
        letter = self.letters.get(name)
        if letter is None:
            return
        try:
            await workflow.execute_activity(
                letter.activity,
                letter.payload,
                start_to_close_timeout=timedelta(seconds=30),
                retry_policy=RetryPolicy(maximum_attempts=1),
            )
        except ActivityError as error:
            letter.reason = f"again: {error.cause}"
        else:
            del self.letters[name]

    @workflow.signal
    def put(self, letter: Letter) -> None:
        """Store a letter."""
        self.letters[letter.name] = letter

    @workflow.signal
    def redrive(self, name: str) -> None:
        """Run the work of a letter again."""
        self.wanted.append(name)

    @workflow.query
    def kept(self) -> dict[str, str]:
        """Why each letter is here."""
        return {name: letter.reason for name, letter in self.letters.items()}
