"""Words for machines: condition types, condition reasons, event reasons. Each is documented here, and nowhere else.

A reason is one CamelCase word, known when the program is written; what varies stands in the message beside it.
The catalogue in the documentation is made from the docstrings (`perdure.api.docstrings.member_docs`).
"""

from enum import StrEnum


class ConditionType(StrEnum):
    """What a condition is about."""

    SUCCEEDED = "Succeeded"
    """WorkflowRun: Unknown while the run is open, True when it completed, False when it closed in any other way."""

    READY = "Ready"
    """Workflow, Schedule, RetryPolicy: it can be used; if not, the message says what to mend."""

    PAUSED = "Paused"
    """WorkflowRun, Schedule: nothing new is started, by a spec, an Operation or a failure; the message says by which."""

    CANCEL_REQUESTED = "CancelRequested"
    """WorkflowRun: the run was asked to cancel itself. It is open until its handlers have run."""

    HISTORY_TRUNCATED = "HistoryTruncated"
    """WorkflowRun: sealed HistorySegments are missing or were tampered with. The run goes on; its past cannot be told."""

    CIRCUIT_CLOSED = "CircuitClosed"
    """RetryPolicy: its circuit breaker lets attempts through. Absent where the policy has no breaker."""

    COMPLETE = "Complete"
    """Operation: it was done; `status.result` tells what came of it."""

    FAILED = "Failed"
    """Operation: it could not be done, and will not be tried again; the message says why."""

    REDRIVEN = "Redriven"
    """DeadLetter: Unknown while the activity runs again, True when that succeeded, False when it failed again."""


class ConditionReason(StrEnum):
    """Why a condition is as it is."""

    # WorkflowRun, Succeeded: the run is open.

    RUNNING = "Running"
    """The run is open and goes on by itself."""

    PAUSED = "Paused"
    """The run is open, and starts nothing new until it is unpaused."""

    ATTEMPT_NOT_STARTING = "AttemptNotStarting"
    """The run is open, and something is in the way of a pod of its: no such image, no node with room, a quota. The
    message says what; the run goes on by itself when that is mended."""

    START_DELAYED = "StartDelayed"
    """The run waits for its `startDelay` to pass."""

    WORKFLOW_ID_IN_USE = "WorkflowIdInUse"
    """The run waits: another one of its workflow id goes first, or is being closed."""

    WORKFLOW_NOT_FOUND = "WorkflowNotFound"
    """The run cannot start: the Workflow it names does not exist. It starts when there is one."""

    INVALID_WORKFLOW = "InvalidWorkflow"
    """The run cannot start: the Workflow it names cannot be run. It starts when that is mended."""

    RETRY_POLICY_NOT_FOUND = "RetryPolicyNotFound"
    """A RetryPolicy that is named does not exist. What waits for it goes on when there is one."""

    NO_WORKER = "NoWorker"
    """No Temporal SDK worker polls the task queue of the run, or of one of its activities. It goes on when one does."""

    WORKFLOW_TASK_FAILED = "WorkflowTaskFailed"
    """The run is open, but what comes next cannot be decided; it is tried again, with backoff."""

    STATE_DAMAGED = "StateDamaged"
    """The run is open, but what its status keeps of it cannot be read. It goes on when that is restored."""

    INTERNAL_ERROR = "InternalError"
    """The operator fails to process the object, and retries with backoff. The message has the error, the log where it
    happened: please report it."""

    COMPILING = "Compiling"
    """The run waits for its definition to be compiled: its namespace has many, or large ones."""

    # WorkflowRun, Succeeded: the run is closed.

    SUCCESSOR_REFUSED = "SuccessorRefused"
    """The run was to go on in another one, which cannot be made; the message says why. The chain ends here."""

    COMPLETED = "Completed"
    """The run ended well."""

    FAILED = "Failed"
    """The run failed; `status.failure` has the whole chain of causes."""

    CANCELLED = "Cancelled"
    """The run was asked to cancel itself, and did."""

    TERMINATED = "Terminated"
    """The run was closed by force: by an Operation, a schedule, a conflict policy or its parent."""

    TIMED_OUT = "TimedOut"
    """The run took longer than its run timeout or execution timeout."""

    CONTINUED_AS_NEW = "ContinuedAsNew"
    """The run closed, and the next run of the same workflow id goes on for it."""

    WORKFLOW_EXECUTION_ALREADY_STARTED = "WorkflowExecutionAlreadyStarted"
    """The run was not started: an open run has its workflow id, or a closed one that must not be repeated. The message
    names it."""

    EXISTING_RUN_USED = "ExistingRunUsed"
    """The run was not started: an open run has its workflow id, and `UseExisting` asks for that one. The message names
    it."""

    INVALID_INPUT = "InvalidInput"
    """The run was not started: its input does not fit the schema of the Workflow."""

    HISTORY_LIMIT_EXCEEDED = "HistoryLimitExceeded"
    """The run was terminated because its history became too long; let it continue as new in time."""

    PAYLOAD_TOO_LARGE = "PayloadTooLarge"
    """An input or a result is larger than 256 KiB; keep it elsewhere and hand on where it is."""

    # CancelRequested and HistoryTruncated.

    CANCEL_REQUESTED = "CancelRequested"
    """Someone asked the run to cancel itself."""

    SEGMENT_MISSING = "SegmentMissing"
    """A HistorySegment was deleted."""

    SEGMENT_CHANGED = "SegmentChanged"
    """A HistorySegment does not have the hash that it was sealed with."""

    # Complete, of Operation.

    SIGNAL_NOT_AWAITED = "SignalNotAwaited"
    """The run keeps the signal, but its workflow never waits for one of that name: mostly the name is misspelled."""

    # Ready, of Workflow, Schedule and RetryPolicy.

    ACCEPTED = "Accepted"
    """The spec was understood and can be used."""

    INVALID_SPEC = "InvalidSpec"
    """The spec cannot be used; the message says which field to mend, and how."""

    POD_REFUSED = "PodRefused"
    """The API server would not take the pod of an activity; the message is its own."""

    UNKNOWN_TIME_ZONE = "UnknownTimeZone"
    """The time zone of a Schedule does not exist."""

    NO_MORE_TIMES = "NoMoreTimes"
    """The Schedule will start nothing by time any more: its `endTime` has passed, or no time fits."""

    RUN_REFUSED = "RunRefused"
    """The API server refused the last run of the Schedule. It tries the next one when that is due."""

    # Paused, of Schedule and WorkflowRun.

    NOT_PAUSED = "NotPaused"
    """Nothing pauses it."""

    PAUSED_BY_SPEC = "PausedBySpec"
    """`spec.paused` or `spec.startPaused` says so."""

    PAUSED_BY_OPERATION = "PausedByOperation"
    """An Operation asked for it; another one ends it."""

    PAUSED_BY_FAILURE = "PausedByFailure"
    """A run of the Schedule failed, and `pauseOnFailure` is set."""

    OUT_OF_ACTIONS = "OutOfActions"
    """The Schedule has started as many runs as `remainingActions` allows."""

    # CircuitClosed, of RetryPolicy.

    CIRCUIT_CLOSED = "CircuitClosed"
    """Attempts are started as usual."""

    CIRCUIT_OPEN = "CircuitOpen"
    """Too many attempts failed in a row; none is started until `status.circuit.openUntil`."""

    CIRCUIT_HALF_OPEN = "CircuitHalfOpen"
    """One attempt at a time is let through, to see whether it succeeds."""

    # Complete and Failed, of Operation.

    DONE = "Done"
    """What was asked for has happened."""

    TARGET_NOT_FOUND = "TargetNotFound"
    """There is no object of that name, or no run of that workflow id."""

    WORKFLOW_EXECUTION_COMPLETED = "WorkflowExecutionCompleted"
    """The run is closed already."""

    ACTIVITY_NOT_FOUND = "ActivityNotFound"
    """The run has no open activity at that step."""

    CANCEL_NOT_REQUESTED = "CancelNotRequested"
    """An activity cannot be answered for as cancelled: nobody has asked it to stop."""

    SIGNAL_LIMIT_EXCEEDED = "SignalLimitExceeded"
    """The run has received as many signals as it may; it should continue as new."""

    RESET_POINT_NOT_FOUND = "ResetPointNotFound"
    """The history has no such event, or not one that a run can be reset to."""

    OVERLAP_SKIPPED = "OverlapSkipped"
    """Nothing was started: an earlier run of the Schedule is open, and the overlap policy starts no other beside it."""

    NOT_SUPPORTED = "NotSupported"
    """This version of the operator does not do that."""

    # Redriven, of DeadLetter.

    REDRIVE_RUNNING = "RedriveRunning"
    """The activity runs again."""

    REDRIVE_SUCCEEDED = "RedriveSucceeded"
    """The activity succeeded when it ran again."""

    REDRIVE_FAILED = "RedriveFailed"
    """The activity failed again for good."""

    REDRIVE_DELETED = "RedriveDeleted"
    """The run that ran the activity again was deleted before it had ended."""


class EventReason(StrEnum):
    """Why an Event was written."""

    # WorkflowRun.

    STARTED = "Started"
    """A run has started."""

    COMPLETED = "Completed"
    """A run has ended well."""

    FAILED = "Failed"
    """A run has failed."""

    CANCELLED = "Cancelled"
    """A run has cancelled itself, as it was asked to."""

    TERMINATED = "Terminated"
    """A run was closed by force."""

    TIMED_OUT = "TimedOut"
    """A run took too long and was closed."""

    CONTINUED_AS_NEW = "ContinuedAsNew"
    """A run has closed, and the next run of the same workflow id goes on for it."""

    RETRYING = "Retrying"
    """A run has failed, and the next run of the same workflow id tries again."""

    WORKFLOW_EXECUTION_ALREADY_STARTED = "WorkflowExecutionAlreadyStarted"
    """A run was not started, because of another run of the same workflow id."""

    INVALID_INPUT = "InvalidInput"
    """A run was not started, because its input does not fit the schema of the Workflow."""

    WORKFLOW_ID_IN_USE = "WorkflowIdInUse"
    """A run waits for another one of its workflow id."""

    WORKFLOW_NOT_FOUND = "WorkflowNotFound"
    """A run waits for a Workflow that does not exist."""

    INVALID_WORKFLOW = "InvalidWorkflow"
    """A run waits for a Workflow that has to be mended."""

    SUCCESSOR_REFUSED = "SuccessorRefused"
    """Warning: the run was to go on in another one, which cannot be made."""

    RETRY_POLICY_NOT_FOUND = "RetryPolicyNotFound"
    """Something waits for a RetryPolicy that does not exist."""

    NO_WORKER = "NoWorker"
    """A run, or one of its activities, waits for a Temporal SDK worker that polls its task queue."""

    WORKFLOW_TASK_FAILED = "WorkflowTaskFailed"
    """What a run does next could not be decided; it is tried again."""

    STATE_DAMAGED = "StateDamaged"
    """Another client wrote the status of a run or Schedule; nothing is done for it until the status is restored or accepted."""

    COMPILING = "Compiling"
    """Warning: a run waits for its definition to be compiled."""

    INTERNAL_ERROR = "InternalError"
    """Warning: the operator fails to process an object, and retries with backoff."""

    FINISHED_RUNS_REMOVED = "FinishedRunsRemoved"
    """The oldest finished runs of a namespace were removed before their TTL, because it had too many of them."""

    HISTORY_LIMIT_EXCEEDED = "HistoryLimitExceeded"
    """A run was terminated because its history became too long."""

    HISTORY_TRUNCATED = "HistoryTruncated"
    """A sealed piece of a run's history is missing or was changed."""

    CANCEL_REQUESTED = "CancelRequested"
    """A run was asked to cancel itself."""

    PAUSED = "Paused"
    """A run or a Schedule was paused."""

    UNPAUSED = "Unpaused"
    """A run or a Schedule goes on after a pause."""

    # Activities and their pods.

    ATTEMPT_FAILED = "AttemptFailed"
    """An attempt of an activity has ended without success; another one follows."""

    DOUBTFUL_RESULT = "DoubtfulResult"
    """An activity succeeded and returned nothing although an expression reads its output, or what looks like JSON and is not."""

    ATTEMPT_LOST = "AttemptLost"
    """The pod of an attempt was lost to the infrastructure; another one follows, and it does not count as a failure."""

    ACTIVITY_FAILED = "ActivityFailed"
    """An activity has failed for good; the run decides what follows."""

    PAYLOAD_TOO_LARGE = "PayloadTooLarge"
    """An input or a result is larger than it may be."""

    POD_REFUSED = "PodRefused"
    """The API server does not take the pod of an attempt for now; it is tried again until schedule-to-start ends."""

    ATTEMPT_NOT_STARTING = "AttemptNotStarting"
    """The pod of an attempt waits for something that may not come by itself: an image, a node with room."""

    DEAD_LETTERED = "DeadLettered"
    """An activity that failed for good was set aside as a DeadLetter."""

    COMPENSATION_FAILED = "CompensationFailed"
    """A compensation has failed; the others are still run."""

    # Schedule.

    RUN_STARTED = "RunStarted"
    """A Schedule has started a run."""

    RUN_SKIPPED = "RunSkipped"
    """A Schedule has not started a run, because an earlier one is open. Told once for each; `status.counts` has all."""

    RUN_REFUSED = "RunRefused"
    """The API server refused a run of a Schedule. Reported once for each reason; the condition `Ready` has it, too."""

    RUN_NAME_TAKEN = "RunNameTaken"
    """The name of a Schedule's run belongs to a WorkflowRun that the Schedule did not create; the run gets another name."""

    CATCHUP_WINDOW_MISSED = "CatchupWindowMissed"
    """Times of a Schedule have passed while the operator was down, and are too old to be started now."""

    BUFFER_DROPPED = "BufferDropped"
    """A Schedule has not started a run, because too many wait already."""

    PAUSED_BY_FAILURE = "PausedByFailure"
    """A Schedule was paused because a run failed."""

    OUT_OF_ACTIONS = "OutOfActions"
    """A Schedule has started as many runs as `remainingActions` allows."""

    # Workflow, Schedule, RetryPolicy.

    INVALID_SPEC = "InvalidSpec"
    """The spec cannot be used; the note says which field to mend, and how."""

    CIRCUIT_OPENED = "CircuitOpened"
    """Too many attempts failed in a row; a circuit breaker holds further ones back."""

    CIRCUIT_HALF_OPENED = "CircuitHalfOpened"
    """A circuit breaker lets one attempt at a time through, to see whether it succeeds."""

    CIRCUIT_CLOSED = "CircuitClosed"
    """A circuit breaker lets attempts through again."""

    # Operation and DeadLetter.

    OPERATION_DONE = "OperationDone"
    """An Operation was done."""

    OPERATION_FAILED = "OperationFailed"
    """An Operation could not be done."""

    REDRIVEN = "Redriven"
    """An activity that was set aside runs again."""

    # Any kind.

    UNREADABLE = "Unreadable"
    """The operator cannot decode an object, and skips it."""
