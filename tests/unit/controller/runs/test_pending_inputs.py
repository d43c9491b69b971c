"""The number of pending inputs that a run takes in one reconciliation."""

from perdure.controller.runs.effects.context import MAX_AT_ONCE, PendingInputs
from perdure.engine.inputs import DecideAgain, RunInput


def test_each_reconciliation_takes_a_limited_number_of_inputs() -> None:
    woken = list[None]()
    pending = PendingInputs(lambda: woken.append(None))
    enqueued: list[RunInput] = [DecideAgain() for _ in range(2 * MAX_AT_ONCE + 7)]
    pending.add(enqueued)
    taken = list[RunInput]()
    sizes = list[int]()
    while pending:
        part = pending.first()
        sizes.append(len(part))
        taken += part
        pending.committed(len(part))
    assert sizes == [MAX_AT_ONCE, MAX_AT_ONCE, 7]
    assert taken == enqueued
    assert woken == []
