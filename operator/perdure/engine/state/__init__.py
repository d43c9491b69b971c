"""The state of a run between two steps, and its changes by events.

``state = fold(events)``, except for what Temporal also keeps next to the history: the number of the current attempt of an open
activity, when it started, its last failure and heartbeat, and the workflow task that could not be decided.
"""

from perdure.engine.state.fold import (
    DEAD_LETTER,
    LIMITS_RELEASED,
    apply,
)
from perdure.engine.state.nexus_operation import (
    REQUEST_TIMEOUT,
    SHORTEST_REQUEST,
    HandlerCalls,
    OperationCancellation,
    PendingOperation,
)
from perdure.engine.state.pending import (
    HeldLimits,
    PendingCallback,
    PendingChild,
    PendingExternal,
    PendingTimer,
)
from perdure.engine.state.pending_activity import (
    PODS_QUEUE,
    RECORD_START_AFTER,
    TAKE_LIMITS,
    PauseInfo,
    PendingActivity,
    timeout_message,
)
from perdure.engine.state.recorded import (
    as_recorded,
)
from perdure.engine.state.run_state import (
    WORKFLOWS_QUEUE,
    CircuitReport,
    CircuitResult,
    RunState,
    RunStatus,
    TaskFailure,
    closing_failure,
)

__all__ = [
    "DEAD_LETTER",
    "LIMITS_RELEASED",
    "PODS_QUEUE",
    "RECORD_START_AFTER",
    "REQUEST_TIMEOUT",
    "SHORTEST_REQUEST",
    "TAKE_LIMITS",
    "WORKFLOWS_QUEUE",
    "CircuitReport",
    "CircuitResult",
    "HandlerCalls",
    "HeldLimits",
    "OperationCancellation",
    "PauseInfo",
    "PendingActivity",
    "PendingCallback",
    "PendingChild",
    "PendingExternal",
    "PendingOperation",
    "PendingTimer",
    "RunState",
    "RunStatus",
    "TaskFailure",
    "apply",
    "as_recorded",
    "closing_failure",
    "timeout_message",
]
