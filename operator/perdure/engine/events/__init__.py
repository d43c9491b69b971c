"""Events of a run, with Temporal's names and attribute names.

A history is a gap-free, append-only list of events. Temporal's ``temporal.api.history.v1`` is the model; the differences are:

* attributes are next to ``eventId`` and ``eventTime`` instead of in a nested object, and payloads are plain JSON values;
* the closing events of an activity also have its ``activityId`` and `attempt`, so that a decider can identify the step and the
  number of attempts without a table;
* a decider in the operator's process (the YAML interpreter) decides within the commit, so there are no WorkflowTask events.
  If a Temporal SDK worker decides, the history has all of them, and is the same as Temporal's.
"""

from typing import TypeAlias

from perdure.engine.events.activity_events import (
    ActivityTaskCanceled,
    ActivityTaskCancelRequested,
    ActivityTaskCompleted,
    ActivityTaskFailed,
    ActivityTaskScheduled,
    ActivityTaskStarted,
    ActivityTaskTimedOut,
)
from perdure.engine.events.child_events import (
    ChildWorkflowExecutionCanceled,
    ChildWorkflowExecutionCompleted,
    ChildWorkflowExecutionFailed,
    ChildWorkflowExecutionStarted,
    ChildWorkflowExecutionTerminated,
    ChildWorkflowExecutionTimedOut,
    StartChildWorkflowExecutionFailed,
    StartChildWorkflowExecutionInitiated,
)
from perdure.engine.events.closing_events import (
    CLOSING,
    ClosingEvent,
    WorkflowExecutionCanceled,
    WorkflowExecutionCompleted,
    WorkflowExecutionContinuedAsNew,
    WorkflowExecutionFailed,
    WorkflowExecutionTerminated,
    WorkflowExecutionTimedOut,
    failure_of,
)
from perdure.engine.events.event import (
    CommandEvent,
    Event,
)
from perdure.engine.events.external_events import (
    ExternalWorkflowExecutionCancelRequested,
    ExternalWorkflowExecutionSignaled,
    RequestCancelExternalWorkflowExecutionFailed,
    RequestCancelExternalWorkflowExecutionInitiated,
    SignalExternalWorkflowExecutionFailed,
    SignalExternalWorkflowExecutionInitiated,
)
from perdure.engine.events.nexus_events import (
    NexusOperationCanceled,
    NexusOperationCancelRequestCompleted,
    NexusOperationCancelRequested,
    NexusOperationCancelRequestFailed,
    NexusOperationCompleted,
    NexusOperationFailed,
    NexusOperationScheduled,
    NexusOperationStarted,
    NexusOperationTimedOut,
)
from perdure.engine.events.run_events import (
    MarkerRecorded,
    UpsertWorkflowSearchAttributes,
    WorkflowExecutionCancelRequested,
    WorkflowExecutionOptionsUpdated,
    WorkflowExecutionPaused,
    WorkflowExecutionSignaled,
    WorkflowExecutionStarted,
    WorkflowExecutionUnpaused,
    WorkflowPropertiesModified,
)
from perdure.engine.events.timer_events import (
    TimerCanceled,
    TimerFired,
    TimerStarted,
)
from perdure.engine.events.update_events import (
    WorkflowExecutionUpdateAccepted,
    WorkflowExecutionUpdateAdmitted,
    WorkflowExecutionUpdateCompleted,
)
from perdure.engine.events.workflow_task_events import (
    WorkflowTaskCompleted,
    WorkflowTaskFailed,
    WorkflowTaskScheduled,
    WorkflowTaskStarted,
    WorkflowTaskTimedOut,
)

AnyEvent: TypeAlias = (
    ActivityTaskCancelRequested
    | ActivityTaskCanceled
    | ActivityTaskCompleted
    | ActivityTaskFailed
    | ActivityTaskScheduled
    | ActivityTaskStarted
    | ActivityTaskTimedOut
    | ChildWorkflowExecutionCanceled
    | ChildWorkflowExecutionCompleted
    | ChildWorkflowExecutionFailed
    | ChildWorkflowExecutionStarted
    | ChildWorkflowExecutionTerminated
    | ChildWorkflowExecutionTimedOut
    | ExternalWorkflowExecutionCancelRequested
    | ExternalWorkflowExecutionSignaled
    | MarkerRecorded
    | NexusOperationCancelRequestCompleted
    | NexusOperationCancelRequestFailed
    | NexusOperationCancelRequested
    | NexusOperationCanceled
    | NexusOperationCompleted
    | NexusOperationFailed
    | NexusOperationScheduled
    | NexusOperationStarted
    | NexusOperationTimedOut
    | RequestCancelExternalWorkflowExecutionFailed
    | RequestCancelExternalWorkflowExecutionInitiated
    | SignalExternalWorkflowExecutionFailed
    | SignalExternalWorkflowExecutionInitiated
    | StartChildWorkflowExecutionFailed
    | StartChildWorkflowExecutionInitiated
    | TimerCanceled
    | TimerFired
    | TimerStarted
    | UpsertWorkflowSearchAttributes
    | WorkflowExecutionCancelRequested
    | WorkflowExecutionCanceled
    | WorkflowExecutionCompleted
    | WorkflowExecutionContinuedAsNew
    | WorkflowExecutionFailed
    | WorkflowExecutionOptionsUpdated
    | WorkflowExecutionPaused
    | WorkflowExecutionSignaled
    | WorkflowExecutionStarted
    | WorkflowExecutionTerminated
    | WorkflowExecutionTimedOut
    | WorkflowExecutionUnpaused
    | WorkflowExecutionUpdateAccepted
    | WorkflowExecutionUpdateAdmitted
    | WorkflowExecutionUpdateCompleted
    | WorkflowPropertiesModified
    | WorkflowTaskCompleted
    | WorkflowTaskFailed
    | WorkflowTaskScheduled
    | WorkflowTaskStarted
    | WorkflowTaskTimedOut
)

__all__ = [
    "CLOSING",
    "ActivityTaskCancelRequested",
    "ActivityTaskCanceled",
    "ActivityTaskCompleted",
    "ActivityTaskFailed",
    "ActivityTaskScheduled",
    "ActivityTaskStarted",
    "ActivityTaskTimedOut",
    "AnyEvent",
    "ChildWorkflowExecutionCanceled",
    "ChildWorkflowExecutionCompleted",
    "ChildWorkflowExecutionFailed",
    "ChildWorkflowExecutionStarted",
    "ChildWorkflowExecutionTerminated",
    "ChildWorkflowExecutionTimedOut",
    "ClosingEvent",
    "CommandEvent",
    "Event",
    "ExternalWorkflowExecutionCancelRequested",
    "ExternalWorkflowExecutionSignaled",
    "MarkerRecorded",
    "NexusOperationCancelRequestCompleted",
    "NexusOperationCancelRequestFailed",
    "NexusOperationCancelRequested",
    "NexusOperationCanceled",
    "NexusOperationCompleted",
    "NexusOperationFailed",
    "NexusOperationScheduled",
    "NexusOperationStarted",
    "NexusOperationTimedOut",
    "RequestCancelExternalWorkflowExecutionFailed",
    "RequestCancelExternalWorkflowExecutionInitiated",
    "SignalExternalWorkflowExecutionFailed",
    "SignalExternalWorkflowExecutionInitiated",
    "StartChildWorkflowExecutionFailed",
    "StartChildWorkflowExecutionInitiated",
    "TimerCanceled",
    "TimerFired",
    "TimerStarted",
    "UpsertWorkflowSearchAttributes",
    "WorkflowExecutionCancelRequested",
    "WorkflowExecutionCanceled",
    "WorkflowExecutionCompleted",
    "WorkflowExecutionContinuedAsNew",
    "WorkflowExecutionFailed",
    "WorkflowExecutionOptionsUpdated",
    "WorkflowExecutionPaused",
    "WorkflowExecutionSignaled",
    "WorkflowExecutionStarted",
    "WorkflowExecutionTerminated",
    "WorkflowExecutionTimedOut",
    "WorkflowExecutionUnpaused",
    "WorkflowExecutionUpdateAccepted",
    "WorkflowExecutionUpdateAdmitted",
    "WorkflowExecutionUpdateCompleted",
    "WorkflowPropertiesModified",
    "WorkflowTaskCompleted",
    "WorkflowTaskFailed",
    "WorkflowTaskScheduled",
    "WorkflowTaskStarted",
    "WorkflowTaskTimedOut",
    "failure_of",
]
