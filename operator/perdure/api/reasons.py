"""Condition types, condition reasons, and Event reasons, which programs can rely on.

A reason is one CamelCase word that is fixed in the code. Variable parts belong in the message next to it.
`hack/reference` writes docs/reference/reasons.md from the docstrings below the members, which say what happened and what to do.
A part after the name of a kind and a colon, as in `Operation: …`, applies to objects of that kind only.
"""

from enum import StrEnum
from typing import Final


class ConditionType(StrEnum):
    """What a condition is about."""

    SUCCEEDED = "Succeeded"
    """Unknown while the run is open, True when it completed, False when it closed in another way. A run that continues as new
    stays Unknown: its outcome is that of the last run of the chain."""

    READY = "Ready"
    """True if the operator can use the object. If it is False, the message says what to fix."""

    ROLLED_OUT = "RolledOut"
    """True if the version in the spec of the WorkerDeployment gets all new runs. If it is False, the message says what it waits
    for."""

    PAUSED = "Paused"
    """True while nothing new starts. WorkflowRun: Running activities continue; their results, and signals, are recorded."""

    CANCEL_REQUESTED = "CancelRequested"
    """True once someone has requested a cancellation. The run stays open until its handlers have finished."""

    HISTORY_TRUNCATED = "HistoryTruncated"
    """True if a HistorySegment is missing or was changed. The run continues, but its history cannot be shown, replayed or reset
    to."""

    NEWER_STATE = "NewerState"
    """True while the operator cannot read the object, because a newer version wrote it. The operator leaves it as it is. Absent
    otherwise."""

    CIRCUIT_CLOSED = "CircuitClosed"
    """True while the circuit breaker lets attempts start. Absent if the policy has no circuit breaker."""

    COMPLETE = "Complete"
    """True once the operator has done what the Operation requests. `status.result` has the result."""

    FAILED = "Failed"
    """True if the operator cannot do what the Operation requests. It does not retry: create another Operation."""

    REDRIVEN = "Redriven"
    """Unknown while the activity runs again, True when it succeeded, False when it failed again."""


class ConditionReason(StrEnum):
    """Why a condition has its status."""

    # WorkflowRun, Succeeded: the run is open.

    RUNNING = "Running"
    """The run is open and makes progress. The message lists the signals that it waits for, and until when."""

    PAUSED = "Paused"
    """The run is paused: it starts nothing new. Unpause it with `perdure unpause`. The message has the reason that was given."""

    ATTEMPT_NOT_STARTING = "AttemptNotStarting"
    """A pod has been pending for more than 5 seconds: its image cannot be pulled, no node has room, a quota is used up, or the
    previous pod is still being stopped. Fix what the message says, or wait; the run then continues."""

    ATTEMPTS_LOST = "AttemptsLost"
    """At least three attempts of an activity were lost to the infrastructure, for example by evictions, and so was the last one.
    They are repeated without counting. Find out what stops the pods; `maximumLosses` in the retry policy limits how often."""

    CREATE_REFUSED = "CreateRefused"
    """The API server refuses to create an object for the run, such as a child: a quota is used up, or a policy forbids it. Fix
    what the message says; the run then continues. Steps that do not need the object are not affected."""

    START_DELAYED = "StartDelayed"
    """The run waits for its `startDelay`, or for the wait before a retry, to end. The message says when it starts."""

    WORKFLOW_ID_IN_USE = "WorkflowIdInUse"
    """WorkflowRun: Another run has the workflow ID. The run waits until that one has closed, and its pods have ended. Operation:
    Another WorkflowRun has the name of the one that the Operation would create. Delete that WorkflowRun and create the Operation
    again."""

    WORKFLOW_NOT_FOUND = "WorkflowNotFound"
    """A Workflow does not exist in the namespace: the one to run, or one from which the definition copies parts. Create it.
    WorkflowRun: The run starts then. Workflow: Its runs wait until then. Schedule: Runs are created when they are due, and wait
    for the Workflow."""

    REVISION_NOT_FOUND = "RevisionNotFound"
    """The WorkflowRevision with the definition of the run was deleted or replaced, or the one that the spec names does not exist.
    The run continues once it exists: restore it from a backup, or give the Workflow the same spec again."""

    INVALID_WORKFLOW = "InvalidWorkflow"
    """The definition or another field has errors, which the message lists. WorkflowRun: Unknown means that the run waits until
    you fix the Workflow. False means that the error is in the run itself, so it has failed: create another run. Schedule:
    Runs are created when they are due, and wait until you fix the Workflow."""

    RETRY_POLICY_NOT_FOUND = "RetryPolicyNotFound"
    """A RetryPolicy in the spec does not exist or is not valid. Create or fix it. WorkflowRun: The run waits until then.
    Workflow: Its runs wait until then. Schedule: Runs start when they are due, but failed runs are not retried until
    then."""

    LIMIT_REACHED = "LimitReached"
    """A WorkflowLimit that the run, or one of its activities, takes has no room for it; the status of the limit lists who
    holds it and who waits. Unknown means that the run, or the step, starts when its turn comes. False means that the run has
    failed: its `overflowPolicy` is Fail, or its `waitTimeout` has expired."""

    TOO_MANY_OPEN_RUNS = "TooManyOpenRuns"
    """The namespace has as many open runs as `openRuns.maxPerNamespace` of the chart permits. The run starts when another one
    closes. Children and the next runs of a chain start anyway."""

    MEMORY_SHORTAGE = "MemoryShortage"
    """The operator uses nearly all of the memory that its container may have, so that new runs wait. Raise
    `resources.limits.memory` of the chart, or run more operators."""

    LIMIT_NOT_FOUND = "LimitNotFound"
    """A WorkflowLimit that the run takes does not exist or is not valid. Create or fix it. The run waits until then."""

    NO_WORKER = "NoWorker"
    """No Temporal SDK worker polls the task queue of the run, of one of its activities, or of a Nexus endpoint that it calls.
    Start a worker, or check its address, namespace and task queue."""

    WORKFLOW_TASK_FAILED = "WorkflowTaskFailed"
    """The operator cannot decide the next step, or the worker of a workflow as code failed or timed out. The operator retries
    with backoff. Fix what the message says, such as the code of the worker."""

    STATE_DAMAGED = "StateDamaged"
    """Another client edited, removed or replaced the status, or a backup was restored; docs/backup.md says what to do.
    WorkflowRun: The run stops until you restore or accept the status. Schedule: No runs start until you restore or accept
    the status. Operation: The damaged status is that of the target."""

    NEWER_STATE = "NewerState"
    """A newer version of the operator wrote the object, and this one cannot read all of it, for example during an upgrade or
    after a rollback. The operator leaves the object as it is; upgrade the operator. WorkflowRun: The run and its requests wait,
    also if the newer version wrote the WorkflowLimit that the run takes. Schedule: No runs start, and requests wait.
    WorkflowLimit: Runs and steps that do not hold the limit yet wait. RetryPolicy: Attempts wait for its circuit breaker.
    Webhook: The operator does not update the status, and rejects requests if it cannot read the spec. Operation: The request
    and later ones for the target wait (`NewerState`), or the operator cannot read the history of the target (`Failed`): create
    the Operation again after the upgrade."""

    INTERNAL_ERROR = "InternalError"
    """The operator cannot process the object. The message has the error, the operator's log the stack trace. Please report it.
    WorkflowRun: The operator retries with backoff. Schedule: The operator retries with backoff."""

    COMPILING = "Compiling"
    """The definition has been waiting to be compiled for more than 2 seconds. The operator compiles one definition of a
    namespace at a time, and large ones take seconds."""

    # WorkflowRun, Succeeded: the run is closed.

    SUCCESSOR_REFUSED = "SuccessorRefused"
    """The run should continue in another run, which the operator cannot create: its name is taken, or the API server refuses it.
    The chain ends here; the message says why."""

    COMPLETED = "Completed"
    """The run completed. Its output is in `status.output`."""

    FAILED = "Failed"
    """The run failed. `status.failure` has the failure and its causes."""

    DEADLINE_EXCEEDED = "DeadlineExceeded"
    """The steps of the run exceeded its `stepsTimeout`, so the run failed, after its compensations and handlers."""

    CANCELLED = "Cancelled"
    """The run was cancelled on request."""

    TERMINATED = "Terminated"
    """The run was terminated: by an Operation, a client, a Schedule, its parent, a reset or another run of its workflow ID, or
    because its history or its object became too large. The message says which."""

    TIMED_OUT = "TimedOut"
    """The run exceeded its run timeout or execution timeout."""

    CONTINUED_AS_NEW = "ContinuedAsNew"
    """The run closed, and the next run of its workflow ID continues its work."""

    WORKFLOW_EXECUTION_ALREADY_STARTED = "WorkflowExecutionAlreadyStarted"
    """The run did not start: another run has its workflow ID, and the run's policies for the reuse and the conflict of workflow
    IDs forbid a second one. The message names the other run."""

    INVALID_INPUT = "InvalidInput"
    """WorkflowRun: The input does not match the schema of the Workflow, so the run did not start. Fix the input and create
    another run. Schedule: The input in `spec.workflowRunTemplate` does not match the schema of the Workflow, so every run
    fails. Fix the input. Operation: The run cannot accept the payload. The message says why."""

    # Operation.

    PAYLOAD_TOO_LARGE = "PayloadTooLarge"
    """The payload of the Operation is too large, is nested too deeply, or does not fit into the status of the run. Store the data
    elsewhere and pass a reference."""

    # CancelRequested and HistoryTruncated.

    CANCEL_REQUESTED = "CancelRequested"
    """Someone requested a cancellation of the run. The Event `CancelRequested` says who and why."""

    SEGMENT_MISSING = "SegmentMissing"
    """A HistorySegment of the run was deleted; the message names it. Operation: The run cannot be reset."""

    SEGMENT_CHANGED = "SegmentChanged"
    """A HistorySegment of the run was replaced: it does not have the recorded hash. The message names it. Operation: The run
    cannot be reset."""

    # Complete, of an Operation.

    SIGNAL_NOT_AWAITED = "SignalNotAwaited"
    """The run has recorded the signal, but its workflow never waits for one of that name. Check the spelling; the message lists
    the signals that it waits for."""

    DEFERRED = "Deferred"
    """The run has recorded the request, but it takes effect later; the message says when: once the run or the activity is
    unpaused, when the run starts, when the running attempt has ended, or once the run can continue."""

    # Ready, of a Webhook.

    SECRET_NOT_READABLE = "SecretNotReadable"  # noqa: S105 (a reason)
    """The Secret of the Webhook, or its key, does not exist, or the operator is not allowed to read it, so requests are rejected.
    Create the Secret, and a Role and a RoleBinding for it (docs/webhooks.md). The operator reads it again every 30 seconds."""

    NOT_SERVED = "NotServed"
    """Webhook: The operator does not serve Webhooks. Set the Helm values `temporal.httpApi.enabled` and
    `temporal.httpApi.webhooks`. WorkerDeployment: The operator does not run workers. Set the Helm values `temporal.enabled` and
    `workerDeployments.enabled`."""

    # Ready and RolledOut, of a WorkerDeployment.

    SERVING = "Serving"
    """A version gets new runs and has pods. The message says which, and how many of its pods are ready."""

    IDLE = "Idle"
    """A version gets new runs and has no pods, because no task waits. The next task starts one."""

    WORKERS_STARTING = "WorkersStarting"
    """The workers of a version have not polled all task queues yet, so it gets no tasks."""

    WORKERS_FAILING = "WorkersFailing"
    """The pods of a version do not start, are restarted again and again, or run workers that do not poll with its deployment and
    build ID. The message has the reason. The operator keeps one pod, and the kubelet restarts it with growing delays. Fix the pod
    template: that is a new version."""

    ROLLED_OUT = "RolledOut"
    """The version in the spec gets all new runs."""

    RAMPING = "Ramping"
    """A version gets a share of the new runs. The message says how large, and until when."""

    ROUTING_REFUSED = "RoutingRefused"
    """The version in the spec cannot get new runs: another client manages the routing, or its workers do not poll a task queue in
    which the current version has tasks. The message says what to do. The operator retries."""

    ROUTING_MANUAL = "RoutingManual"
    """The version in the spec is ready, and `versioning.routing` is `Manual`: set it with `perdure deployment set-current`."""

    # Ready, of a Workflow, Schedule or RetryPolicy.

    ACCEPTED = "Accepted"
    """The spec is valid. Workflow: The message has the warnings of the static checks (docs/linting.md), if there are any.
    Schedule: The message has the warnings of the static checks (docs/linting.md), if there are any."""

    INVALID_SPEC = "InvalidSpec"
    """Workflow: The definition has errors. Fix the fields that the message names; runs wait with `InvalidWorkflow` until
    then. Schedule: The spec has errors. Fix the fields that the message names; no runs start until then. RetryPolicy: The
    spec has errors. Fix the fields that the message names; runs that name the policy wait with `RetryPolicyNotFound`
    until then. WorkflowLimit: The spec has errors. Fix the fields that the message names; runs that take the limit wait
    with `LimitNotFound` until then. Webhook: The spec has errors. Fix the fields that the message names; requests are
    rejected until then. WorkerDeployment: The spec has errors. Fix the fields that the message names; the workers stay as
    they are until then. WorkflowDefaults: The spec has errors. Fix the fields that the message names; new runs of the
    namespace wait with `InvalidWorkflow` until then. Operation: The Operation, its target or the run that it would start
    is invalid. The message says what to fix."""

    POD_REFUSED = "PodRefused"
    """Workflow: The API server refused the pod of an activity in a dry run: a field is invalid, or a policy forbids it.
    The operator retries every minute. Runs start anyway. WorkerDeployment: The API server refused the Deployment of a
    version. The message says why; the operator retries every minute. WorkflowDefaults: The API server refused a pod with
    these defaults in a dry run: a field is invalid, or a policy forbids it. The operator retries every minute."""

    UNKNOWN_TIME_ZONE = "UnknownTimeZone"
    """The time zone of the Schedule does not exist. Use a name of the IANA time zone database, such as `Europe/Berlin`."""

    NO_MORE_TIMES = "NoMoreTimes"
    """The Schedule starts no more runs: its `endTime` has passed, or no time matches within 40 years."""

    RUN_REFUSED = "RunRefused"
    """The API server refused the last run of the Schedule; the message says why. Fix `spec.workflowRunTemplate` or what refuses
    the run. The operator tries the next run when it is due."""

    # Paused, of a Schedule or WorkflowRun.

    NOT_PAUSED = "NotPaused"
    """The object is not paused."""

    PAUSED_BY_SPEC = "PausedBySpec"
    """`spec.paused` of the Schedule is true. Set it to false. Operation: An Operation cannot unpause the Schedule until then."""

    PAUSED_BY_OPERATION = "PausedByOperation"
    """An Operation or a client paused the Schedule. Unpause it with `perdure schedule unpause`."""

    PAUSED_BY_FAILURE = "PausedByFailure"
    """A run of the Schedule failed, and `pauseOnFailure` is true. Fix the failure, then run `perdure schedule unpause`."""

    OUT_OF_ACTIONS = "OutOfActions"
    """The Schedule has started as many runs as `remainingActions` allows. Raise it to start more."""

    # CircuitClosed, of a RetryPolicy.

    CIRCUIT_CLOSED = "CircuitClosed"
    """Attempts start normally."""

    CIRCUIT_OPEN = "CircuitOpen"
    """Too many attempts failed in a row. No attempt starts until `status.circuit.openUntil`."""

    CIRCUIT_HALF_OPEN = "CircuitHalfOpen"
    """One attempt at a time starts, to find out whether it succeeds."""

    # Complete and Failed, of an Operation.

    DONE = "Done"
    """The target has recorded the request. For `cancel` this means that the cancellation was requested, not that the run has
    ended."""

    TARGET_NOT_FOUND = "TargetNotFound"
    """The target does not exist in the namespace, or was deleted before it responded. Check the name or the workflow ID."""

    WORKFLOW_EXECUTION_COMPLETED = "WorkflowExecutionCompleted"
    """The run had already closed."""

    WORKFLOW_CLOSING = "WorkflowClosing"
    """The run is about to close and accepts no signals. Create the Operation again."""

    ACTIVITY_NOT_FOUND = "ActivityNotFound"
    """The run has no pending activity at that step. `status.pendingActivities` of the run lists them."""

    CANCEL_NOT_REQUESTED = "CancelNotRequested"
    """An activity can only end as cancelled if its cancellation was requested. Complete it with a result or a failure."""

    SIGNAL_LIMIT_EXCEEDED = "SignalLimitExceeded"
    """The run has received the maximum number of signals. Use `continueAsNew` before that."""

    RESET_POINT_NOT_FOUND = "ResetPointNotFound"
    """The run cannot be reset to that event: it does not exist, no decision was made there, or the workflow would decide
    differently before it. The message names the nearest possible events."""

    WORKSPACE_LOST = "WorkspaceLost"
    """The PersistentVolumeClaim of a workspace is gone, and with it the files of steps that would not run again. Retry the run,
    and name in `from` the steps that the message names."""

    OVERLAP_SKIPPED = "OverlapSkipped"
    """The Schedule started no run: an earlier one is open and the overlap policy does not allow two, or too many starts are
    buffered."""

    TOO_MANY_BACKFILLS = "TooManyBackfills"
    """The Schedule has the maximum number of backfills in progress. Wait until some of them have started their runs, or cancel
    them. One backfill can have any number of times."""

    NOT_SUPPORTED = "NotSupported"
    """The DeadLetter does not contain the definition of its activity, so it cannot be re-driven."""

    # Redriven, of a DeadLetter; an Operation that re-drives fails with the first two.

    REDRIVE_RUNNING = "RedriveRunning"
    """The activity is running again. Wait until it has ended."""

    REDRIVE_SUCCEEDED = "RedriveSucceeded"
    """The activity ran again and succeeded. You can delete the DeadLetter."""

    REDRIVE_FAILED = "RedriveFailed"
    """The activity ran again and failed again. Fix the cause and re-drive the DeadLetter once more."""

    REDRIVE_DELETED = "RedriveDeleted"
    """The run that ran the activity again was deleted before it had ended. You can re-drive the DeadLetter once more."""


class EventReason(StrEnum):
    """Why the operator recorded an Event."""

    # WorkflowRun.

    STARTED = "Started"
    """The run started. Recorded only with the Helm value `routineEvents`."""

    COMPLETED = "Completed"
    """The run completed. Recorded only with the Helm value `routineEvents`."""

    FAILED = "Failed"
    """The run failed. The note has the failure."""

    CANCELLED = "Cancelled"
    """The run was cancelled on request."""

    TERMINATED = "Terminated"
    """The run was terminated. The note says why."""

    TIMED_OUT = "TimedOut"
    """The run exceeded its run timeout or execution timeout."""

    CONTINUED_AS_NEW = "ContinuedAsNew"
    """The run closed, and the next run of its workflow ID continues its work. The note names it. Recorded only with the Helm
    value `routineEvents`."""

    RETRYING = "Retrying"
    """A run of the Schedule failed, and the Schedule starts it again at the time in the note."""

    WORKFLOW_ID_IN_USE = "WorkflowIdInUse"
    """The run waits until another run of its workflow ID has closed."""

    WORKFLOW_NOT_FOUND = "WorkflowNotFound"
    """The run, or the runs of the Workflow or of the Schedule, wait for a Workflow that does not exist. Create it."""

    REVISION_NOT_FOUND = "RevisionNotFound"
    """The run waits for a WorkflowRevision that was deleted or replaced, or does not exist. Restore it."""

    INVALID_WORKFLOW = "InvalidWorkflow"
    """The run, or the runs of the Schedule, wait for a Workflow that has errors. Fix the Workflow."""

    INVALID_INPUT = "InvalidInput"
    """The input of the Schedule's runs does not match the schema of the Workflow, so every run fails. Fix the input."""

    SUCCESSOR_REFUSED = "SuccessorRefused"
    """The run should continue in another run, which the operator cannot create. The note says why."""

    RETRY_POLICY_NOT_FOUND = "RetryPolicyNotFound"
    """A RetryPolicy in the spec does not exist or is not valid. Create or fix it. WorkflowRun: The run waits until then.
    Workflow: Its runs wait until then. Schedule: Runs start when they are due, but failed runs are not retried until
    then."""

    LIMIT_REACHED = "LimitReached"
    """The run waits for a WorkflowLimit that has no room for it."""

    TOO_MANY_OPEN_RUNS = "TooManyOpenRuns"
    """The run waits because its namespace has as many open runs as the installation permits."""

    MEMORY_SHORTAGE = "MemoryShortage"
    """The run waits because the operator has little memory left."""

    LIMIT_NOT_FOUND = "LimitNotFound"
    """The run waits for a WorkflowLimit that does not exist or is not valid. Create or fix it."""

    RESULT_NOT_CACHED = "ResultNotCached"
    """An activity with `cache` completed, but its result cannot be stored. The note says why. The run is not affected."""

    LOG_NOT_ARCHIVED = "LogNotArchived"
    """The log of an attempt that succeeded could not be stored. The container `perdure-outputs` of its pod logs why."""

    NO_WORKER = "NoWorker"
    """No Temporal SDK worker polls the task queue of the run, of one of its activities, or of a Nexus endpoint that it calls.
    Reported once, until a worker polls."""

    WORKFLOW_TASK_FAILED = "WorkflowTaskFailed"
    """The operator cannot decide the next step, or the worker of a workflow as code failed or timed out. The operator retries
    with backoff and reports only the first failure in a row."""

    STATE_DAMAGED = "StateDamaged"
    """Another client edited, removed or replaced the status. The note says what is wrong and what to do; see docs/backup.md."""

    NEWER_STATE = "NewerState"
    """A newer version of the operator wrote the object, and this one cannot read all of it. It leaves the object as it is;
    upgrade the operator."""

    COMPILING = "Compiling"
    """The definition has been waiting to be compiled for more than 2 seconds."""

    INTERNAL_ERROR = "InternalError"
    """The operator cannot process the object and retries with backoff. The note has the error. Please report it."""

    FINISHED_RUNS_REMOVED = "FinishedRunsRemoved"
    """The namespace had too many finished runs, so the operator removed the oldest before their TTL. The note says how many, and
    which limit was exceeded."""

    NOT_ARCHIVED = "NotArchived"
    """A finished run cannot be archived. The run stays until its namespace has too many. The note has the error."""

    ARCHIVE_UNAVAILABLE = "ArchiveUnavailable"
    """The archive cannot be used, so finished runs that it does not have stay in the cluster. WorkflowRun: The namespace has too
    many of them. Pod: The note has the error; it is reported every ten minutes."""

    ARCHIVE_AVAILABLE = "ArchiveAvailable"
    """The archive can be used again."""

    ARTIFACTS_NOT_DELETED = "ArtifactsNotDeleted"
    """The artifacts of deleted runs could not be deleted from their store. The note has the reason, and says whether the operator
    retries or has given up."""

    HISTORY_TRUNCATED = "HistoryTruncated"
    """A HistorySegment of the run is missing or was changed. The note names it."""

    CANCEL_REQUESTED = "CancelRequested"
    """Someone requested a cancellation of the run. The note says who and why."""

    PAUSED = "Paused"
    """Someone paused it. The note says why and, for a WorkflowRun, who."""

    UNPAUSED = "Unpaused"
    """Someone unpaused it. The note says why and, for a WorkflowRun, who."""

    # Activities and their pods.

    ATTEMPT_FAILED = "AttemptFailed"
    """An attempt of an activity failed, timed out or was lost. The note says why, and when the next attempt starts."""

    DOUBTFUL_RESULT = "DoubtfulResult"
    """An activity succeeded, but returned nothing although an expression reads its output, or returned text that looks like JSON
    and is not valid. Reported once for each step."""

    PAYLOAD_TOO_LARGE = "PayloadTooLarge"
    """WorkflowRun: The spec alone fills the object, so that the operator cannot record anything. Create a run with a smaller
    input or definition. Schedule: The output of the last run is too large to be passed to the next one, or the template leaves
    no room for a status, so that no run starts: shorten the template. Workflow: The definition leaves no room for a status;
    shorten it."""

    POD_REFUSED = "PodRefused"
    """The API server refuses the pod of an activity or its Lease, or the Deployment of workers: a quota, a policy, an invalid
    field. Fix what the note says. WorkflowRun: The operator retries until the activity's schedule-to-start timeout. Workflow: The
    operator checks again every minute. WorkerDeployment: The operator tries again every minute."""

    ATTEMPT_NOT_STARTING = "AttemptNotStarting"
    """The pod of an attempt has been pending for more than 5 seconds: its image cannot be pulled, no node has room. Reported
    once for each attempt."""

    CREATE_REFUSED = "CreateRefused"
    """The API server refuses to create a child, a DeadLetter or the next run: a quota is used up, or a policy forbids it. Or a
    newer version has stored the artifacts of a DeadLetter. The operator retries with backoff, and reports each object once."""

    DEAD_LETTERED = "DeadLettered"
    """An activity failed permanently, and the operator created a DeadLetter for it."""

    # Webhook.

    SECRET_NOT_READABLE = "SecretNotReadable"  # noqa: S105 (a reason)
    """The operator cannot read the secret of the Webhook, so requests are rejected. The note says what to do."""

    DELIVERY_FAILED = "DeliveryFailed"
    """A request with a valid signature could not be processed: an expression has no value for it, or the API server rejects the
    run. The note says why; the sender got the status 422."""

    # WorkerDeployment.

    VERSION_CREATED = "VersionCreated"
    """The operator created the Deployment of a new version."""

    VERSION_REMOVED = "VersionRemoved"
    """The operator removed the Deployment of an old version: no open run is pinned to it, and `sunsetDelay` has passed."""

    WORKERS_SCALED = "WorkersScaled"
    """The operator changed the number of pods of a version. The note says from what to what, and why."""

    WORKERS_FAILING = "WorkersFailing"
    """The pods of a version do not start or do not poll. The note has the reason."""

    ROUTING_REFUSED = "RoutingRefused"
    """A version cannot get new runs. The note says why."""

    # Schedule.

    RUN_SKIPPED = "RunSkipped"
    """The Schedule did not start a run, because an earlier one is open. Reported once for each open run; `status.counts` counts
    all skipped times."""

    RUN_REFUSED = "RunRefused"
    """The API server refused a run of the Schedule. The note says why. Reported once for each cause."""

    RUN_NAME_TAKEN = "RunNameTaken"
    """The name of the Schedule's next run belongs to a WorkflowRun that the Schedule did not create. The run starts under
    another name."""

    CATCHUP_WINDOW_MISSED = "CatchupWindowMissed"
    """No runs start for times that are older than `catchupWindow`, or that `catchupPolicy` or a pause left out."""

    BUFFER_DROPPED = "BufferDropped"
    """The Schedule dropped a start, because too many are waiting."""

    BACKFILL_CANCELLED = "BackfillCancelled"
    """An Operation has cancelled the backfills of the Schedule: no further runs of them start. The note names their ranges."""

    PAUSED_BY_FAILURE = "PausedByFailure"
    """A run failed, and `pauseOnFailure` paused the Schedule. Fix the failure, then run `perdure schedule unpause`."""

    OUT_OF_ACTIONS = "OutOfActions"
    """The Schedule has started as many runs as `remainingActions` allows."""

    # Workflow, Schedule, RetryPolicy.

    INVALID_SPEC = "InvalidSpec"
    """The spec is invalid. Fix the fields that the note names."""

    CIRCUIT_OPENED = "CircuitOpened"
    """Too many attempts failed in a row. The circuit breaker starts no attempts for a while."""

    CIRCUIT_HALF_OPENED = "CircuitHalfOpened"
    """The circuit breaker starts one attempt at a time, to find out whether it succeeds."""

    CIRCUIT_CLOSED = "CircuitClosed"
    """The circuit breaker lets attempts start normally again."""

    # Operation and DeadLetter.

    OPERATION_DONE = "OperationDone"
    """The target has recorded what an Operation requests. WorkflowRun: A Warning if the workflow never waits for the signal."""

    OPERATION_FAILED = "OperationFailed"
    """An Operation failed. The note has the reason and the message of its condition `Failed`."""

    REDRIVEN = "Redriven"
    """The activity of the DeadLetter runs again. The note names the run."""

    # ConfigMap `perdure-worker-deployments`.

    CURRENT_VERSION_CHANGED = "CurrentVersionChanged"
    """A client made another version of a worker deployment the current one: new and auto-upgrade workflows go to it."""

    RAMPING_VERSION_CHANGED = "RampingVersionChanged"
    """A client changed which share of new and auto-upgrade workflows goes to which ramping version of a worker deployment."""

    # Lease of an operator.

    OPERATOR_JOINED = "OperatorJoined"
    """The operator shares the work from now on. The note has the number of its shards."""

    OPERATOR_LOST = "OperatorLost"
    """The operator has not renewed its Lease in time: it was killed, or its node or the network failed. The other operators own
    its shards."""

    # ConfigMap of an upgrade.

    STATE_VERSION = "StateVersion"
    """The version of the form in which the operators store objects has changed, or an upgrade to the next one has begun or was
    undone. The note has the version, and when the next one follows."""

    # Any kind.

    UNREADABLE = "Unreadable"
    """The operator cannot decode the object and skips it. Delete the object, or reduce the nesting of its values."""


ROUTINE_EVENTS: Final = frozenset({EventReason.STARTED, EventReason.COMPLETED, EventReason.CONTINUED_AS_NEW})
"""Reasons of Events that need no action. The status and the history say the same, and each Event costs a write."""


class ConditionStatus(StrEnum):
    """Whether a condition holds."""

    TRUE = "True"
    """It holds."""

    FALSE = "False"
    """It does not hold."""

    UNKNOWN = "Unknown"
    """Not known yet. For `Succeeded`, the run is still open."""
