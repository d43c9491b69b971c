"""Inputs: external occurrences that affect a run. The controller observes them; `step` turns them into events.

An input about an attempt names the attempt. If that is not the current attempt, the input is stale and changes nothing: this
fence keeps a superseded pod from reporting.
"""

from typing import TypeAlias

from perdure.engine.inputs.activity_task_inputs import (
    ActivityBeat,
    ActivityInput,
    ActivityReported,
    ActivityReturned,
    ActivityTaken,
)
from perdure.engine.inputs.answer import (
    CLOSED,
    CLOSING,
    OPERATION_NOT_FOUND,
    TOO_MANY_CALLBACKS,
    Answer,
)
from perdure.engine.inputs.attempt_inputs import (
    AttemptCancelled,
    AttemptCompleted,
    AttemptFailed,
    AttemptInput,
    AttemptLost,
    AttemptStarted,
    AttemptWaiting,
    HeartbeatRead,
)
from perdure.engine.inputs.client_requests import (
    OPERATOR,
    ActivityAnswered,
    ActivityReset,
    CallbacksAttached,
    CancelRequested,
    OptionsChanged,
    OverrideChanged,
    PauseRequested,
    RequestForgotten,
    SignalRequested,
    TerminateRequested,
    UnpauseRequested,
)
from perdure.engine.inputs.nexus_inputs import (
    OperationCancelReported,
    OperationEnded,
    OperationInput,
    OperationOutcome,
    OperationReported,
)
from perdure.engine.inputs.relation_inputs import (
    ChildClosed,
    ChildOutcome,
    ChildStarted,
    ChildStartFailed,
    DecideAgain,
    EffectDone,
    ExternalDone,
    UpdateAdmitted,
)
from perdure.engine.inputs.workflow_task_inputs import (
    StickinessReset,
    TaskCompleted,
    TaskFailed,
    TaskInput,
    TaskReturned,
    TaskTaken,
    TaskToken,
    TaskWanted,
)

WorkerInput: TypeAlias = ActivityInput | TaskInput | OperationInput
ClientRequest: TypeAlias = (
    SignalRequested
    | CancelRequested
    | TerminateRequested
    | PauseRequested
    | UnpauseRequested
    | ActivityAnswered
    | ActivityReset
    | OptionsChanged
    | CallbacksAttached
    | OverrideChanged
)
Request: TypeAlias = ClientRequest | WorkerInput
RunInput: TypeAlias = (
    AttemptInput
    | Request
    | RequestForgotten
    | ChildStarted
    | ChildStartFailed
    | ChildClosed
    | ExternalDone
    | UpdateAdmitted
    | EffectDone
    | DecideAgain
)

__all__ = [
    "CLOSED",
    "CLOSING",
    "OPERATION_NOT_FOUND",
    "OPERATOR",
    "TOO_MANY_CALLBACKS",
    "ActivityAnswered",
    "ActivityBeat",
    "ActivityInput",
    "ActivityReported",
    "ActivityReset",
    "ActivityReturned",
    "ActivityTaken",
    "Answer",
    "AttemptCancelled",
    "AttemptCompleted",
    "AttemptFailed",
    "AttemptInput",
    "AttemptLost",
    "AttemptStarted",
    "AttemptWaiting",
    "CallbacksAttached",
    "CancelRequested",
    "ChildClosed",
    "ChildOutcome",
    "ChildStartFailed",
    "ChildStarted",
    "ClientRequest",
    "DecideAgain",
    "EffectDone",
    "ExternalDone",
    "HeartbeatRead",
    "OperationCancelReported",
    "OperationEnded",
    "OperationInput",
    "OperationOutcome",
    "OperationReported",
    "OptionsChanged",
    "OverrideChanged",
    "PauseRequested",
    "Request",
    "RequestForgotten",
    "RunInput",
    "SignalRequested",
    "StickinessReset",
    "TaskCompleted",
    "TaskFailed",
    "TaskInput",
    "TaskReturned",
    "TaskTaken",
    "TaskToken",
    "TaskWanted",
    "TerminateRequested",
    "UnpauseRequested",
    "UpdateAdmitted",
    "WorkerInput",
]
