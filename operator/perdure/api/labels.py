"""Names that Perdure puts on Kubernetes objects: labels, annotations, finalizers.

Labels and annotations under ``perdure.dev/`` on pods and Leases are the operator's; users put their own beside them.
"""

from typing import Final

GROUP: Final = "perdure.dev"
"""API group of every kind."""

API_VERSION: Final = "perdure.dev/v1alpha1"
"""API version of every kind."""

SEARCH_PREFIX: Final = "search.perdure.dev/"
"""Before the names of search attributes, as labels or annotations of runs."""

AUDIT_PREFIX: Final = "audit.perdure.dev/"
"""Before the names of annotations that say who has made an object."""

CREATED_BY_ANNOTATION: Final = f"{AUDIT_PREFIX}created-by"
"""Annotation on WorkflowRuns and Operations: the user that has made them, as the API server has authenticated it. Written by an
admission policy, or by the operator on behalf of a Temporal client."""

PARENT_RUN_LABEL: Final = "perdure.dev/parent-run"
"""Label on child runs: the name of the parent (cut with a hash where it exceeds 63 characters)."""

PARENT_RUN_ID_LABEL: Final = "perdure.dev/parent-run-id"
"""Label on child runs: the UID of the parent."""

PARENT_ANNOTATION: Final = "perdure.dev/parent"
"""Annotation on child runs, written by the operator: what ties it to its parent, JSON."""

CONTINUES_ANNOTATION: Final = "perdure.dev/continues"
"""Annotation on runs that continue or retry another, written by the operator: what they take over from it, JSON."""

START_ANNOTATION: Final = "perdure.dev/start"
"""Annotation on runs that a Temporal client or workflow has started, and on Schedules that a Temporal client has made: what it
said of the run beside the spec, JSON."""

SCHEDULE_ID_ANNOTATION: Final = "perdure.dev/schedule-id"
"""Annotation on Schedules that a Temporal client has made with an id that is no name of an object: that id."""

CLIENT_ANNOTATION: Final = "perdure.dev/client"
"""Annotation on Schedules that a Temporal client has made: what it said of them beside the spec, such as a memo; JSON."""

SCHEDULE_LABEL: Final = "perdure.dev/schedule"
"""Label on runs that a Schedule has started: its name (cut with a hash where it exceeds 63 characters)."""

SCHEDULED_BY_ANNOTATION: Final = "perdure.dev/scheduled-by"
"""Annotation on runs that a Schedule has started: what they know of it, JSON; `schedule` in expressions."""

START_SIGNAL_ANNOTATION: Final = "perdure.dev/start-signal"
"""Annotation on runs that a `signalWithStart` Operation has started, written by the operator: the signal, JSON."""

RESET_ANNOTATION: Final = "perdure.dev/reset"
"""Annotation on runs that begin with a part of another one's history, written by the operator: whose, and up to where, JSON."""

UNCLAIMED_LABEL: Final = "perdure.dev/unclaimed"
"""Label on Payloads that belong to no run yet: the run is about to be created. Those that stay so are removed."""

ACCEPT_STATE_ANNOTATION: Final = "perdure.dev/accept-state"
"""Annotation on runs and Schedules, written by an administrator: the fingerprint of a damaged status to continue from."""

RUN_LABEL: Final = "perdure.dev/run"
"""Label on pods and Leases: the name of the WorkflowRun (cut with a hash where it exceeds 63 characters)."""

RUN_ID_LABEL: Final = "perdure.dev/run-id"
"""Label on pods and Leases: the UID of the WorkflowRun. It is what the operator's pod watch selects on."""

ACTIVITY_LABEL: Final = "perdure.dev/activity"
"""Label on pods and Leases: the name of the activity (cut with a hash where it exceeds 63 characters)."""

SCHEDULED_EVENT_ANNOTATION: Final = "perdure.dev/scheduled-event-id"
"""Annotation on pods and Leases: id of the ActivityTaskScheduled event, decimal."""

ATTEMPT_ANNOTATION: Final = "perdure.dev/attempt"
"""Annotation on pods and Leases: number of the attempt, decimal, from 1."""

RUN_ANNOTATION: Final = "perdure.dev/run"
"""Annotation on pods and Leases: the whole name of the WorkflowRun."""

INPUT_ANNOTATION: Final = "perdure.dev/input"
"""Annotation on pods: the activity's input, JSON."""

LAST_HEARTBEAT_DETAILS_ANNOTATION: Final = "perdure.dev/last-heartbeat-details"
"""Annotation on pods: the heartbeat details an earlier attempt left, JSON; absent where there are none."""

EXPIRES_LABEL: Final = "perdure.dev/expires"
"""Label on pods of attempts that have succeeded: when they are deleted, in seconds since 1970. It is set together with the
removal of the finalizer."""

POD_RETENTION_ANNOTATION: Final = "perdure.dev/pod-retention"
"""Annotation on pods: what becomes of them after success and failure, as `Expire/Keep`; absent where that is the default."""

HEARTBEAT_DETAILS_ANNOTATION: Final = "perdure.dev/heartbeat-details"
"""Annotation on Leases, written by the pod: details of the last heartbeat, JSON."""

RESULT_ANNOTATION: Final = "perdure.dev/result"
"""Annotation on Leases, written by the pod: a large result, JSON."""

CANCEL_REQUESTED_ANNOTATION: Final = "perdure.dev/cancel-requested"
"""Annotation on Leases, written by the operator: the reason for which the attempt should stop."""

DEAD_LETTER_LABEL: Final = "perdure.dev/dead-letter-id"
"""Label on runs that re-drive a DeadLetter: its UID."""

DEAD_LETTER_ANNOTATION: Final = "perdure.dev/dead-letter"
"""Annotation on runs that re-drive a DeadLetter: its name."""

REQUEST_ANNOTATION: Final = "perdure.dev/requested-by"
"""Annotation on runs that an Operation has asked for: its UID."""

BATCH_LABEL: Final = "perdure.dev/batch"
"""Label on the Operations that a batch of a Temporal client is made of: its id (with a hash where that is no label value)."""

BATCH_ANNOTATION: Final = "perdure.dev/batch"
"""Annotation on these Operations: what the client said of the whole batch, JSON."""

RESERVED_PREFIXES: Final = (f"{GROUP}/", AUDIT_PREFIX)
"""Labels and annotations of runs that users must not write, also not by way of a Schedule."""

FINALIZER: Final = "perdure.dev/outcome"
"""Finalizer on pods until the run has recorded how the attempt ended."""

ADOPTED_ANNOTATION: Final = "perdure.dev/adopted"
"""On the ConfigMap with a namespace's search attributes: those that runs had when it was first written are in it."""
