"""Names that Perdure puts on Kubernetes objects: labels, annotations, finalizers.

Labels and annotations under ``perdure.dev/`` on pods and Leases are reserved for the operator; users can add others.
"""

from typing import Final

GROUP: Final = "perdure.dev"
"""The API group of every kind."""

VERSION: Final = "v1alpha1"
"""The stored version, which the operator and the command line use."""

SERVED_VERSIONS: Final = ("v1beta1", VERSION)
"""All served versions, the preferred one first. They have the same fields, so the API server converts objects by itself."""

API_VERSION: Final = f"{GROUP}/{VERSION}"
"""The `apiVersion` of the objects that the operator and the command line write."""

API_VERSIONS: Final = tuple(f"{GROUP}/{version}" for version in SERVED_VERSIONS)
"""The valid `apiVersion`s of manifests."""

SEARCH_PREFIX: Final = "search.perdure.dev/"
"""Prefix of search attributes as labels or annotations of runs."""

AUDIT_PREFIX: Final = "audit.perdure.dev/"
"""Prefix of annotations that say who created an object."""

CREATED_BY_ANNOTATION: Final = f"{AUDIT_PREFIX}created-by"
"""Annotation on WorkflowRuns and Operations: the user who created them, as authenticated by the API server. Written by an
admission policy, or by the operator on behalf of a Temporal client. The operator copies that of a run to its pods."""

PARENT_RUN_LABEL: Final = "perdure.dev/parent-run"
"""Label on child runs: the name of the parent (with a hash if it exceeds 63 characters)."""

PARENT_RUN_ID_LABEL: Final = "perdure.dev/parent-run-id"
"""Label on child runs: the UID of the parent."""

PARENT_ANNOTATION: Final = "perdure.dev/parent"
"""Annotation on child runs, written by the operator: the reference to its parent, JSON."""

CONTINUES_ANNOTATION: Final = "perdure.dev/continues"
"""Annotation on runs that continue or retry another, written by the operator: what they inherit from it, JSON."""

START_ANNOTATION: Final = "perdure.dev/start"
"""Annotation on runs that a Temporal client or workflow started, and on Schedules that a Temporal client created: the start
options that the spec has no fields for, JSON."""

SCHEDULE_ID_ANNOTATION: Final = "perdure.dev/schedule-id"
"""Annotation on Schedules that a Temporal client created with an ID that is not a valid object name: that ID."""

CLIENT_ANNOTATION: Final = "perdure.dev/client"
"""Annotation on Schedules that a Temporal client created: data that the spec has no fields for, such as a memo; JSON."""

SCHEDULE_LABEL: Final = "perdure.dev/schedule"
"""Label on runs that a Schedule started: its name (with a hash if it exceeds 63 characters)."""

SCHEDULED_BY_ANNOTATION: Final = "perdure.dev/scheduled-by"
"""Annotation on runs that a Schedule started: the value of `schedule` in expressions, JSON."""

SCHEDULE_TIMES_ANNOTATION: Final = "schedule.perdure.dev/times"
"""Annotation on runs that a Schedule started, and on their reruns: the zone and the times around the scheduled time, JSON."""

START_SIGNAL_ANNOTATION: Final = "perdure.dev/start-signal"
"""Annotation on runs that a `signalWithStart` Operation started, written by the operator: the signal, JSON."""

RESET_ANNOTATION: Final = "perdure.dev/reset"
"""Annotation on runs that begin with a part of the history of another run, written by the operator: the run and the last event,
JSON."""

WORKFLOW_LABEL: Final = "perdure.dev/workflow"
"""Label on WorkflowRevisions: the name of the Workflow (with a hash if it exceeds 63 characters)."""

REVISION_LABEL: Final = "perdure.dev/revision"
"""Label on WorkflowRevisions: the number of the revision among those of its Workflow, decimal."""

ARCHIVED_ANNOTATION: Final = "perdure.dev/archived"
"""Annotation on WorkflowRuns that were read from the archive, and on no object of the cluster."""

ARCHIVE_ANNOTATION: Final = "perdure.dev/archive"
"""Annotation on the Service of the frontend, written by the chart: finished runs are archived."""

UNUSED_ANNOTATION: Final = "perdure.dev/unused-since"
"""Annotation on WorkflowRevisions, written by the operator: since when nothing needs it. What needs it again removes the
annotation."""

UNCLAIMED_LABEL: Final = "perdure.dev/unclaimed"
"""Label on Payloads whose run is not created yet. The operator deletes them if the run is never created."""

ACCEPT_STATE_ANNOTATION: Final = "perdure.dev/accept-state"
"""Annotation on runs and Schedules, written by an administrator: the fingerprint of a damaged status to accept."""

FLEET_LABEL: Final = "perdure.dev/fleet"
"""Label on the Leases of operators that share their work: the release that they belong to."""

MEMBERS_ANNOTATION: Final = "perdure.dev/members"
"""Annotation on the Leases of operators that share their work: the operators that this one divides the work among, separated by
commas."""

MEMBER_ADDRESS_ANNOTATION: Final = "perdure.dev/address"
"""Annotation on the Leases of operators that share their work: the IP address of the pod, with a port if other operators forward
RPCs to it; empty if it is not known."""

MEMBER_FRAMES_ANNOTATION: Final = "perdure.dev/frames"
"""Annotation on the Leases of operators that share their work: the form of the frames in which the operator takes calls of
others. Not set: it takes them over gRPC only."""

STATE_VERSIONS_ANNOTATION: Final = "perdure.dev/state-versions"
"""Annotation on the Leases of operators that share their work: the state versions that the operator reads, such as `1-2`."""

STATE_VERSION_ANNOTATION: Final = "perdure.dev/state-version"
"""Annotation on Leases, and on ConfigMaps with settings of Temporal clients, written by the operator: the state version of their
content. Not set: 1."""

UPGRADE_RECORD_LABEL: Final = "perdure.dev/upgrade-record"
"""Label on the ConfigMap in which the operators of a release record the state version that they write."""

MEMBER_RELEASE_ANNOTATION: Final = "perdure.dev/release"
"""Annotation on the Leases of operators that share their work: the version of Perdure that the operator runs."""

RUN_LABEL: Final = "perdure.dev/run"
"""Label on pods, Leases, ArtifactSets, CachedResults, and claims of workspaces: the name of the WorkflowRun (with a hash if it
exceeds 63 characters)."""

RUN_ID_LABEL: Final = "perdure.dev/run-id"
"""Label on pods, Leases, and claims of workspaces: the UID of the WorkflowRun. The pod watch of the operator selects by it."""

ACTIVITY_LABEL: Final = "perdure.dev/activity"
"""Label on pods, Leases, and CachedResults: the name of the activity (with a hash if it exceeds 63 characters)."""

SERVICE_LABEL: Final = "perdure.dev/service"
"""Label on pods of services of steps: the name of the Kubernetes Service, which selects by it."""

SCHEDULED_EVENT_ANNOTATION: Final = "perdure.dev/scheduled-event-id"
"""Annotation on pods and Leases: ID of the ActivityTaskScheduled event, decimal."""

ATTEMPT_ANNOTATION: Final = "perdure.dev/attempt"
"""Annotation on pods and Leases: number of the attempt, decimal; the first is 1."""

RUN_ANNOTATION: Final = "perdure.dev/run"
"""Annotation on pods and Leases: the full name of the WorkflowRun."""

INPUT_ANNOTATION: Final = "perdure.dev/input"
"""Annotation on pods: the input of the activity, JSON."""

SCRIPT_ANNOTATION: Final = "perdure.dev/script"
"""Annotation on pods: the script of the activity."""

WORK_ANNOTATION: Final = "perdure.dev/work"
"""Annotation on pods: the HTTP request or the action on a Kubernetes object that the pod performs, JSON."""

NEEDS_ANNOTATION: Final = "perdure.dev/needs"
"""Annotation on pods: the containers that are the activity together, each with those that it waits for, JSON; not set if there is
only one container."""

CREATED_BY_ACTIVITY_ANNOTATION: Final = "perdure.dev/created-by-activity"
"""Annotation on objects that an activity with `resource` has created: the run ID and the activity ID."""

LAST_HEARTBEAT_DETAILS_ANNOTATION: Final = "perdure.dev/last-heartbeat-details"
"""Annotation on pods: the last heartbeat details of an earlier attempt, JSON; not set if there are none."""

EXPIRES_LABEL: Final = "perdure.dev/expires"
"""Label on CachedResults, and on pods of attempts that succeeded: when to delete them, in seconds since 1970. On pods, it is
set in the write that removes the finalizer."""

STOPPED_ANNOTATION: Final = "perdure.dev/stopped"
"""Annotation on pods, written by the operator: when it had the containers of an attempt stopped whose pod is kept."""

POD_RETENTION_ANNOTATION: Final = "perdure.dev/pod-retention"
"""Annotation on pods: retention after success and failure, such as `Expire/Keep`; not set for the default."""

WORKSPACE_LABEL: Final = "perdure.dev/workspace"
"""Label on PersistentVolumeClaims that the operator created: the name of the workspace."""

STAYS_UNTIL_LABEL: Final = "perdure.dev/stays-until"
"""Label on these claims: `run-closed` if they may be deleted when their run closes; `run-deleted` if they stay until it is
deleted."""

CLAIM_RETENTION_ANNOTATION: Final = "perdure.dev/claim-retention"
"""Annotation on these claims: retention after success and failure of the run, such as `Delete/Keep`."""

RUN_CLOSED: Final = "run-closed"
"""Value of `STAYS_UNTIL_LABEL`: what happens to the claim is decided when its run closes."""

RUN_DELETED: Final = "run-deleted"
"""Value of `STAYS_UNTIL_LABEL`: the claim is deleted with its last run."""

ARTIFACT_STORE_LABEL: Final = "perdure.dev/artifact-store"
"""Label on pods that delete artifacts: the Secret of the artifact store (with a hash if it exceeds 63 characters)."""

ARTIFACT_SETS_ANNOTATION: Final = "perdure.dev/artifact-sets"
"""Annotation on these pods: the names of the ArtifactSets whose artifacts they delete, JSON."""

IMAGE_ANNOTATION: Final = "perdure.dev/image"
"""Annotation on ArtifactSets: an image with the programs that read the artifact store."""

CLAIM_PREFIX: Final = "claim.perdure.dev/"
"""Prefix of labels on pods that mount the PersistentVolumeClaim of a workspace; its name follows."""

HEARTBEAT_DETAILS_ANNOTATION: Final = "perdure.dev/heartbeat-details"
"""Annotation on Leases, written by the pod: details of the last heartbeat, JSON."""

RESULT_ANNOTATION: Final = "perdure.dev/result"
"""Annotation on Leases, written by the pod: a large result, JSON."""

CANCEL_REQUESTED_ANNOTATION: Final = "perdure.dev/cancel-requested"
"""Annotation on Leases, written by the operator: why the attempt should stop."""

DEAD_LETTER_LABEL: Final = "perdure.dev/dead-letter-id"
"""Label on runs that re-drive a DeadLetter: its UID."""

DEAD_LETTER_ANNOTATION: Final = "perdure.dev/dead-letter"
"""Annotation on runs that re-drive a DeadLetter: its name."""

REQUEST_ANNOTATION: Final = "perdure.dev/requested-by"
"""Annotation on runs that an Operation requested: its UID."""

BATCH_LABEL: Final = "perdure.dev/batch"
"""Label on the Operations of a batch of a Temporal client: its ID (with a hash if that is not a valid label value)."""

BATCH_ANNOTATION: Final = "perdure.dev/batch"
"""Annotation on these Operations: the description of the whole batch, JSON."""

WEBHOOK_LABEL: Final = "perdure.dev/webhook"
"""Label on runs and Operations that a request to a Webhook created: its name (with a hash if it exceeds 63 characters)."""

DELIVERY_ANNOTATION: Final = "perdure.dev/delivery-id"
"""Annotation on these runs and Operations: the ID of the request."""

WORKER_DEPLOYMENT_LABEL: Final = "perdure.dev/worker-deployment"
"""Label on Deployments of workers and on their pods: the name of the WorkerDeployment."""

WORKER_VERSION_LABEL: Final = "perdure.dev/worker-build-id"
"""Label on these Deployments and pods: the build ID of the version."""

TEMPLATE_ANNOTATION: Final = "perdure.dev/worker-template"
"""Annotation on these Deployments: the hash of the pod template in the WorkerDeployment."""

ACTIVITIES_ANNOTATION: Final = "perdure.dev/activities"
"""Annotation on a Workflow with the activities of flows: their hash. In the pod template of a WorkerDeployment: the hash of each
such Workflow that the version was made for, as `etl=5f3c09d1a2,tools=…`."""

REVISIONS_ANNOTATION: Final = "perdure.dev/revisions"
"""Annotation on the Deployment of such a version: the WorkflowRevisions with these activities, as `etl=etl-51c0be9be29f,…`."""

RESERVED_PREFIXES: Final = (f"{GROUP}/", AUDIT_PREFIX)
"""Prefixes of labels and annotations of runs that users must not write, not even in the template of a Schedule."""

POD_FINALIZER: Final = "perdure.dev/outcome"
"""Finalizer on pods until the run has recorded how the attempt ended."""

ADOPTED_ANNOTATION: Final = "perdure.dev/adopted"
"""Annotation on the ConfigMap with the search attributes of a namespace: it contains those that runs had when it was created."""
