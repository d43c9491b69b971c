"""The responses of operators to updates, and the check that histories agree with them in the end."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.update.v1 import Outcome, UpdateRef

from perdure.frontend.messages import failures
from perdure.runtime.callbacks import UPDATE_LOST
from simulated.sdk.updates import REJECTED

LOST = Outcome(failure=failures.to_proto(UPDATE_LOST))
"""The outcome of an accepted update that its workflow did not complete."""


class AcknowledgedUpdates:
    """Collects the answers to clients."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        """`fail` records a violation."""
        self._fail = fail
        self._outcomes: defaultdict[str, dict[str, Outcome | None]] = defaultdict(dict)
        """By run ID and update ID; None: the update was accepted, and its outcome is not known."""

    def answered(self, ref: UpdateRef, outcome: Outcome | None) -> None:
        """A call has returned an update that was accepted, or the outcome of an update."""
        run_id, update_id = ref.workflow_execution.run_id, ref.update_id
        before = self._outcomes[run_id].setdefault(update_id, outcome)
        if before is None:
            self._outcomes[run_id][update_id] = outcome
        elif outcome is not None and before != outcome:
            self._fail(f"update {update_id} of run {run_id} has two outcomes: {before} and {outcome}")

    def check(self, run_id: str, events: Iterable[HistoryEvent]) -> None:
        """Compare the history of a closed run with the answers."""
        accepted: Counter[str] = Counter()
        completed: defaultdict[str, list[Outcome]] = defaultdict(list)
        for event in events:
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
                accepted[event.workflow_execution_update_accepted_event_attributes.protocol_instance_id] += 1
            elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED:
                attributes = event.workflow_execution_update_completed_event_attributes
                completed[attributes.meta.update_id].append(attributes.outcome)
        for update_id in accepted | Counter(completed.keys()):
            if (accepted[update_id], len(completed[update_id])) not in {(1, 0), (1, 1)}:
                self._fail(
                    f"update {update_id} of run {run_id} is accepted {accepted[update_id]} times, and completed "
                    f"{len(completed[update_id])} times"
                )
        for update_id, outcome in self._outcomes[run_id].items():
            if not _agree(outcome, accepted[update_id], completed[update_id]):
                self._fail(
                    f"update {update_id} of run {run_id} was answered with {outcome}; it is accepted "
                    f"{accepted[update_id]} times, and completed with {completed[update_id]}"
                )


def _agree(outcome: Outcome | None, accepted: int, completed: list[Outcome]) -> bool:
    """Whether the history says the same about an update as the answer to its client."""
    if outcome is not None and outcome.failure.message == REJECTED:
        return not accepted
    return accepted == 1 and (outcome is None or completed == ([] if outcome == LOST else [outcome]))
