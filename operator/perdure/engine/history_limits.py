"""The limits of a run's history."""

from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.ledger import Ledger

MAX_EVENTS = 51_200
"""A run with a longer history is terminated."""
MAX_BYTES = 50 * 1024 * 1024
"""A run with a larger history is terminated."""


def terminate_oversized(ledger: Ledger) -> None:
    """Terminate a run whose history has grown too large, as Temporal's server does."""
    state = ledger.state
    if ledger.open() and (state.next_event_id > MAX_EVENTS + 1 or state.history_size > MAX_BYTES):
        reason = (
            f"the history has {state.next_event_id - 1:,} events and {state.history_size:,} bytes, more than "
            f"the {MAX_EVENTS:,} events or {MAX_BYTES // 2**20} MiB that a run can have: use `continueAsNew` "
            "before it reaches this limit"
        )
        ledger.close(ev.WorkflowExecutionTerminated(reason=reason, identity=inp.OPERATOR, **ledger.here))
