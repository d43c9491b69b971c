"""Workflow: a reusable definition of activities and steps.

First the activities: the kinds of work for which Perdure writes the container (scripts, HTTP requests, Kubernetes objects),
containers and pods of the user, caches, and results. `steps.py` has the steps.
"""

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum
from operator import not_
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from perdure.api.fields import (
    FailureTypeName,
    Flag,
    Identifier,
    Json,
    JsonObject,
    Large,
    Name,
    NamespaceChoice,
    Positive,
    QualifiedName,
    Reference,
    ResourceName,
    Template,
    TimeoutOrExpression,
    atomic_list,
    map_list,
    set_list,
)
from perdure.api.kinds.artifact import Artifacts
from perdure.api.kinds.retrypolicy import RetryPolicyChoice
from perdure.api.kinds.status import Conditions
from perdure.api.kinds.steps import MAX_BLOCK_STEPS, MAX_STEPS, Step
from perdure.api.kinds.workflowlimit import MAX_LIMITS, ActivityLimit, LimitUse
from perdure.api.kinds.workspace import MAX_WORKSPACES, Workspace, WorkspaceMount
from perdure.api.models import Column, KindInfo, Resource, SpecModel, StatusModel, condition_path
from perdure.api.policies import FailurePolicy
from perdure.api.rules import Rule, at_least_one_of, exactly_one_of, json_name
from perdure.api.times import Duration, PositiveDuration

MAX_ACTIVITIES = 200
"""Maximum number of activities of one definition."""

MAX_BLOCKS = 100
"""Maximum number of blocks of one definition."""

MAX_SERVICES: Final = 8
"""Maximum number of services of an activity, or of a list of steps."""

SERVICE_NAME_PATTERN: Final = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""The name of a service of steps: of a container, and a part of the name of a Kubernetes Service."""

MAX_SOURCE = 65_536
"""Maximum characters of the source of a script."""

MAX_CACHE_KEY: Final = 1_024
"""Maximum length of the value of `key`."""

MAX_CACHED_BYTES: Final = 65_536
"""Maximum size of a cached result with the references to its artifacts, as JSON."""

HttpMethod = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
"""The method of a request."""


class ScriptResult(StrEnum):
    """Where the result of a script comes from."""

    FILE = "File"
    """The file `$PERDURE_TERMINATION_LOG`, as for any container."""

    LAST_LINE = "LastLine"
    """The last line that the script prints to stdout."""

    OUTPUT = "Output"
    """Everything that the script prints to stdout."""


class Script(SpecModel):
    """A script, and the image with its interpreter.

    The script is the file `/perdure/script` in a container with that image.
    """

    model_config = ConfigDict(extra="allow")

    image: Annotated[str, Field(min_length=1, max_length=1024)]
    """Container image. All other fields of a Kubernetes container are allowed too: `env`, `resources`, `volumeMounts` and so on.
    `image`, `args`, the values of `env` and `source` can contain expressions, as in `container`."""

    command: Annotated[list[Annotated[str, Field(max_length=4096)]], atomic_list(32, min_items=1)] = Field(
        default_factory=lambda: ["sh"]
    )
    """The interpreter, such as `[python]`. It gets the file with the script, and then `args`. Default: `[sh]`."""

    source: Annotated[str, Field(min_length=1, max_length=MAX_SOURCE)]
    """The script. It reads its input from `$PERDURE_INPUT`. Write `$${` for a literal `${`."""

    result: ScriptResult = ScriptResult.FILE
    """Where the result comes from: File, LastLine or Output. Default: File. For LastLine and Output, the image needs `sh`, `tee`
    and `tail`; a result that the script writes to the file takes precedence."""


class Key(SpecModel):
    """A key of a Secret or ConfigMap in the namespace of the run."""

    name: ResourceName
    """Name of the Secret or ConfigMap."""

    key: Annotated[str, Field(min_length=1, max_length=253)]
    """The key in its data."""


class HttpHeader(SpecModel):
    """A header of a request: a text, then the value of a Secret."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    """Name of the header."""

    value: Template = ""
    """Text with expressions. Default: none."""

    secret: Key | None = None
    """A key of a Secret, whose value follows `value`. Only the pod reads it. Default: none."""


class Http(SpecModel):
    """An HTTP request, which a pod of Perdure sends."""

    method: HttpMethod = "GET"
    """GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS. Default: GET."""

    url: Annotated[Template, Field(min_length=1)]
    """The URL, `http://…` or `https://…`; text with expressions."""

    query: Annotated[JsonObject, Field(max_length=100)] = Field(default_factory=dict)
    """Parameters that are encoded and appended to the URL, by name; values can contain expressions. Default: none."""

    headers: Annotated[list[HttpHeader], atomic_list(64)] = Field(default_factory=list)
    """Headers of the request. Default: `Content-Type: application/json` if the body is not a text, and `Idempotency-Key` for POST
    and PATCH, which is the same for all attempts."""

    body: Json = None
    """The body; any value, with expressions. A text is sent as it is, any other value as JSON. Default: none."""

    ca: Key | None = None
    """A key of a ConfigMap with the PEM certificates that verify the certificate of the server. Default: those of the image."""

    timeout: PositiveDuration = timedelta(seconds=30)
    """Maximum time of the request, such as `1m`. Default: 30s."""

    success_condition: Template | None = None
    """Whether the request succeeded: an expression that returns true or false, with `response` (`status`, `headers` and `body`),
    `input`, `run` and `attempt`. Default: the status is 200 to 299."""

    retry_statuses: Annotated[list[Annotated[int, Field(strict=True, ge=100, le=599)]], set_list(100)] = Field(
        default_factory=lambda: [408, 425, 429, 500, 502, 503, 504]
    )
    """Status codes of failures that retry policies may retry; other codes from 300 are not retried. If the response has
    `Retry-After`, the next attempt waits for that time. Default: 408, 425, 429, 500, 502, 503 and 504."""

    output: Json = None
    """Result of the activity; any value, with the expressions of `successCondition`. Default: an object with `status` and
    `body`."""

    resources: JsonObject | None = None
    """Resources of the container, as in a pod. Default: requests of 10m CPU and 64Mi memory."""


class ResourceAction(StrEnum):
    """What is done with a Kubernetes object."""

    CREATE = "Create"
    """Create the object. A repeated attempt finds the object that an earlier attempt created."""

    APPLY = "Apply"
    """Create or change the object by a server-side apply."""

    PATCH = "Patch"
    """Patch the object, which must exist."""

    DELETE = "Delete"
    """Delete the object, and wait until it does not exist."""

    GET = "Get"
    """Read the object."""


class PatchType(StrEnum):
    """The format of a patch."""

    MERGE = "Merge"
    """A JSON merge patch (RFC 7386)."""

    STRATEGIC = "Strategic"
    """A strategic merge patch of Kubernetes, which custom resources do not support."""

    JSON = "Json"
    """A JSON patch (RFC 6902): a list of operations."""


class KubernetesResource(SpecModel):
    """An action on a Kubernetes object, which a pod of Perdure performs with the permissions of a ServiceAccount."""

    action: ResourceAction
    """Create, Apply, Patch, Delete or Get."""

    manifest: JsonObject
    """The object; any value can contain expressions. Patch, Delete and Get use only `apiVersion`, `kind`, `metadata.name` and
    `metadata.namespace`. Create also accepts `metadata.generateName`. Default namespace: that of the run."""

    patch: Json = None
    """The patch of `action: Patch`; any value, with expressions."""

    patch_type: PatchType = PatchType.MERGE
    """The format of `patch`: Merge, Strategic or Json. Default: Merge."""

    owned: Flag = False
    """Whether the run owns the object that it creates or applies, so that both are deleted together. Default: false."""

    service_account_name: ResourceName
    """The ServiceAccount whose permissions apply, in the namespace of the run."""

    success_condition: Template | None = None
    """When the activity has succeeded: an expression that returns true or false, with `object` (as the API server returns it),
    `input`, `run` and `attempt`. Until then, it reads the object again and again; an expression that fails counts as false.
    Default: immediately."""

    failure_condition: Template | None = None
    """When the activity has failed: an expression as in `successCondition`. Default: never."""

    output: Json = None
    """Result of the activity; any value, with the expressions of `successCondition`. Default: an object with `apiVersion`,
    `kind`, `name`, `namespace` and `uid`."""

    resources: JsonObject | None = None
    """Resources of the container, as in a pod. Default: requests of 10m CPU and 64Mi memory."""


class Container(SpecModel):
    """A Kubernetes container (core/v1 Container).

    When you apply the Workflow, the operator validates the pod with a dry run and reports errors in the condition `Ready`.
    """

    model_config = ConfigDict(extra="allow")

    image: Annotated[str, Field(min_length=1, max_length=1024)]
    """Container image. All other fields of a Kubernetes container are allowed too: `command`, `args`, `env`, `resources`,
    `volumeMounts` and so on. `image`, `args` and the values of `env` can contain expressions with `input` (the input of the
    activity), `run` and `attempt`."""


class Service(Container):
    """A container beside the activity, such as a database, that starts and is ready before it."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the container."""


class GroupService(SpecModel):
    """A container in a pod of its own, such as a database, that runs as long as the steps of a list."""

    model_config = ConfigDict(extra="allow")

    name: Annotated[str, Field(max_length=40, pattern=SERVICE_NAME_PATTERN)]
    """Name of the container, and of the service in expressions."""

    image: Annotated[str, Field(min_length=1, max_length=1024)]
    """Container image. All other fields of a Kubernetes container are allowed too, such as `readinessProbe`. `image`, `args`, and
    the values of `env` can contain expressions with `input` (in a block, its `params`) and `run`."""

    ready_timeout: Duration = timedelta(minutes=5)
    """How long the steps wait until the service is ready, such as `2m`, before they fail. Default: 5m."""

    pod_spec_patch: JsonObject | None = None
    """Changes to the spec of the pod, as in an activity. Default: none."""


class PodSpec(SpecModel):
    """A Kubernetes pod spec (core/v1 PodSpec)."""

    model_config = ConfigDict(extra="allow")

    containers: Annotated[list[JsonObject], atomic_list(32, min_items=1)]
    """The containers; the first one is the activity. They can contain expressions as in `container`. A container with `needs`
    belongs to the activity, too, and starts its `command` when the containers in `needs` have succeeded. All other fields of
    a Kubernetes pod spec are allowed too: `volumes`, `nodeSelector`, `serviceAccountName` and so on."""


class PodTemplateMetadata(SpecModel):
    """Labels and annotations of the pods."""

    labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=100)] = Field(
        default_factory=dict
    )
    """Labels of the pods. Default: none."""

    annotations: Annotated[dict[str, Annotated[str, Field(max_length=65_536)]], Field(max_length=100)] = Field(
        default_factory=dict
    )
    """Annotations of the pods. Default: none."""


class PodTemplate(SpecModel):
    """A Kubernetes pod template (core/v1 PodTemplateSpec)."""

    metadata: PodTemplateMetadata | None = None
    """Labels and annotations of the pods. Default: none."""

    spec: PodSpec
    """The spec of the pods; the first container is the activity. When you apply the Workflow, the operator validates the pod
    with a dry run and reports errors in the condition `Ready`."""


class Worker(SpecModel):
    """A Temporal SDK worker that runs the activity. The operator creates no pods for it."""

    type: Identifier | None = None
    """Activity type, as the worker registers it. Default: the name of the activity."""

    task_queue: Identifier
    """Task queue that the worker polls."""


class FailureType(SpecModel):
    """Maps exit codes of the container to a failure type."""

    exit_codes: Annotated[list[Annotated[int, Field(strict=True, ge=1, le=255)]], set_list(255, min_items=1)]
    """Exit codes of the container, 1 to 255."""

    type: FailureTypeName
    """Type of the failure, which `catch` and retry policies match."""

    non_retryable: Flag = False
    """Whether retry policies must not retry the failure. Default: false."""


class ResultSize(StrEnum):
    """Maximum size of the result of an activity, which decides how the pod returns it."""

    SMALL = "Small"
    """Up to 4 KiB, in the termination message: the pod needs no token and calls no API."""

    LARGE = "Large"
    """Up to 256 KiB, in the Lease of the attempt."""


class Retention(StrEnum):
    """What happens to a pod whose attempt has ended."""

    DELETE = "Delete"
    """Delete it as soon as its outcome is recorded."""

    EXPIRE = "Expire"
    """Keep it for a few minutes, which the operator's settings define, so that you can read its log."""

    KEEP = "Keep"
    """Keep it until its run is deleted, so that you can read its log."""


class PodRetention(SpecModel):
    """What happens to the pods of attempts that have ended."""

    on_success: Retention = Retention.EXPIRE
    """Pods of attempts that succeeded: Delete, Expire or Keep. Default: Expire."""

    on_failure: Retention = Retention.KEEP
    """Pods of attempts that failed, or were lost while their pod still exists: Delete, Expire or Keep. Default: Keep. The
    operator always deletes pods that it had to stop."""


class PodReplacementPolicy(StrEnum):
    """When the pod of the next attempt is created, as in a Job (kubernetes.io/docs/concepts/workloads/controllers/job)."""

    FAILED = "Failed"
    """When no container of the previous attempt runs any more, or its node is lost."""

    TERMINATING_OR_FAILED = "TerminatingOrFailed"
    """As soon as the previous pod is being stopped, so the containers of two attempts can run at the same time."""


class Sidecar(SpecModel):
    """A container that heartbeats, returns the result and passes on cancellation for the activity, by files.

    With it, any image can do this: the container of the activity needs neither a library nor a token.
    """

    image: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """An image with Python and `perdure.activity`. Default: the image of the operator."""

    auto_heartbeat: Flag = False
    """Whether it heartbeats automatically while the container of the activity runs. Default: false."""

    resources: JsonObject | None = None
    """Resources of the container, as in a pod. Default: requests of 5m CPU and 24Mi memory."""


class ResultCache(SpecModel):
    """When an activity uses an earlier result instead of running again."""

    key: Annotated[Template, Field(min_length=1)]
    """What the result depends on: text with expressions as in `container`, such as `${input.version}`. A value that is not a
    text becomes JSON. If it is null or empty, the result is neither looked up nor stored. At most 1,024 characters."""

    max_age: PositiveDuration
    """Maximum age of an earlier result, such as `1h`. The operator deletes older ones."""


WORK_KINDS = ("container", "pod_template", "script", "http", "resource", "worker")
"""What can run an activity, as Python names of the fields."""


class ActivitySource(SpecModel):
    """An activity of another Workflow."""

    workflow: QualifiedName
    """Name of a Workflow in the same namespace, or `<namespace>/<name>` of one whose `allowedNamespaces` has this namespace."""

    activity: Reference | None = None
    """Name of its activity. Default: the same name."""


class BlockSource(SpecModel):
    """A block of another Workflow."""

    workflow: QualifiedName
    """Name of a Workflow in the same namespace, or `<namespace>/<name>` of one whose `allowedNamespaces` has this namespace."""

    block: Reference | None = None
    """Name of its block. Default: the same name."""


class Activity(SpecModel):
    """One kind of work: what runs it, its timeouts, how failures are retried."""

    rules = (
        exactly_one_of(*WORK_KINDS, "from_"),
        at_least_one_of(
            "start_to_close_timeout",
            "schedule_to_close_timeout",
            "from_",
            message="`startToCloseTimeout` or `scheduleToCloseTimeout` must be set: otherwise the run would wait for a "
            "lost attempt forever",
        ),
        Rule(
            "`sidecar` must not be used with `worker`: a worker has no pod for each attempt",
            "!has(self.sidecar) || !has(self.worker)",
            lambda activity: activity.sidecar is None or activity.worker is None,
        ),
        Rule(
            "`podSpecPatch` must not be used with `worker`: a worker has no pod for each attempt",
            "!has(self.podSpecPatch) || !has(self.worker)",
            lambda activity: activity.pod_spec_patch is None or activity.worker is None,
        ),
        Rule(
            "`podMetadata` must not be used with `worker`, which has no pod, or with `podTemplate`, which has `metadata`",
            "!has(self.podMetadata) || (!has(self.worker) && !has(self.podTemplate))",
            lambda activity: (
                activity.pod_metadata is None or (activity.worker is None and activity.pod_template is None)
            ),
        ),
        Rule(
            "`services` must not be used with `worker`: a worker has no pod for each attempt",
            "!has(self.services) || !has(self.worker)",
            lambda activity: not activity.services or activity.worker is None,
        ),
        Rule(
            "`retryOnAnotherNode` must not be used with `worker`: a worker has no pod for each attempt",
            "!has(self.retryOnAnotherNode) || !has(self.worker)",
            lambda activity: not activity.retry_on_another_node or activity.worker is None,
        ),
        Rule(
            "`limits` must not be used with `worker`: a worker takes attempts from its task queue",
            "!has(self.limits) || !has(self.worker)",
            lambda activity: not activity.limits or activity.worker is None,
        ),
        Rule(
            "`retryPolicy.maximumLosses` must not be used with `worker`: a worker has no pod that can be lost",
            "!has(self.worker) || !has(self.retryPolicy) || !has(self.retryPolicy.maximumLosses)",
            lambda activity: (
                activity.worker is None or activity.retry_policy is None or activity.retry_policy.maximum_losses is None
            ),
        ),
        Rule(
            "`cache` must not be used with `worker`: the operator does not start its attempts",
            "!has(self.cache) || !has(self.worker)",
            lambda activity: activity.cache is None or activity.worker is None,
        ),
        Rule(
            "`podReplacementPolicy` must not be used with `worker`, and must be Failed with `limits`",
            "!has(self.podReplacementPolicy) || "
            "!has(self.worker) && (!has(self.limits) || self.podReplacementPolicy == 'Failed')",
            lambda activity: (
                activity.pod_replacement_policy is None
                or (activity.worker is None and not (activity.limits and activity.may_overlap))
            ),
        ),
        Rule(
            "`workspaces` must be used with `container`, `podTemplate` or `script`",
            "!has(self.workspaces) || has(self.container) || has(self.podTemplate) || has(self.script)",
            lambda activity: not activity.workspaces or activity.work in {"container", "podTemplate", "script"},
        ),
        Rule(
            "`artifacts` must be used with `container`, `podTemplate` or `script`",
            "!has(self.artifacts) || has(self.container) || has(self.podTemplate) || has(self.script)",
            lambda activity: activity.artifacts is None or activity.work in {"container", "podTemplate", "script"},
        ),
    )

    name: Name
    """Name of the activity; steps refer to it."""

    from_: ActivitySource | None = None
    """An activity of another Workflow, which a run copies when it starts. Other fields that are set here replace those of that
    activity. Default: none."""

    start_to_close_timeout: PositiveDuration | None = None
    """Maximum time of one attempt, such as `5m`; the operator stops and retries a longer one.
    Default: `scheduleToCloseTimeout`."""

    schedule_to_close_timeout: PositiveDuration | None = None
    """Maximum time of all attempts and the waits between them, such as `1h`. Default: no limit."""

    schedule_to_start_timeout: PositiveDuration | None = None
    """Maximum time until an attempt starts, such as `10m`; never retried. Default: no limit."""

    heartbeat_timeout: PositiveDuration | None = None
    """Maximum time between two heartbeats, such as `30s`; makes the activity cancellable. If a heartbeat is late, the operator
    ends the attempt and retries it. Default: no heartbeats are expected."""

    retry_policy: RetryPolicyChoice | None = None
    """How failures are retried. Default: `exponential: {}`, which waits 1s, 2s, 4s, … up to 100s, forever."""

    pod_retention: PodRetention | None = None
    """What happens to the pods of attempts that have ended. Default: the operator keeps those that succeeded for five minutes,
    and those that failed until the run is deleted."""

    pod_replacement_policy: PodReplacementPolicy | None = None
    """When the pod of a retry is created: Failed waits until no container of the previous attempt runs, TerminatingOrFailed does
    not wait for one that is being stopped. Must be Failed with `limits`. Default: Failed."""

    result_size: ResultSize = ResultSize.SMALL
    """Maximum size of the result of a pod. Default: Small."""

    container: Container | None = None
    """A container that runs the activity, in a new pod for each attempt."""

    pod_template: PodTemplate | None = None
    """A whole pod that runs the activity, one for each attempt; its first container is the activity."""

    script: Script | None = None
    """A script that runs the activity, in a new pod for each attempt."""

    http: Http | None = None
    """An HTTP request that is the activity; a new pod sends it for each attempt."""

    resource: KubernetesResource | None = None
    """An action on a Kubernetes object that is the activity; a new pod performs it for each attempt."""

    services: Annotated[list[Service], map_list("name", MAX_SERVICES)] = Field(default_factory=list, exclude_if=not_)
    """Containers beside the activity in its pod, which reaches them at `localhost`. The activity starts when the
    `readinessProbe` of each has succeeded. Default: none."""

    limits: Annotated[list[ActivityLimit], map_list("name", MAX_LIMITS)] = Field(default_factory=list, exclude_if=not_)
    """WorkflowLimits that the activity takes before the pod of its first attempt is created. It holds them, across retries,
    until it has ended and none of its pods runs any more. Default: none."""

    workspaces: Annotated[list[WorkspaceMount], atomic_list(MAX_WORKSPACES)] = Field(
        default_factory=list, exclude_if=not_
    )
    """The workspaces that the container of the activity mounts. In a `podTemplate`, other containers can mount the volume
    `workspace-<name>`. Default: none."""

    artifacts: Artifacts | None = None
    """Files that exist when the container of the activity starts, and files that it leaves for others. Default: none."""

    cache: ResultCache | None = None
    """When to use the result of an earlier attempt, also of another run in the namespace, instead of running again.
    Default: never."""

    retry_on_another_node: Annotated[Flag, Field(exclude_if=not_)] = False
    """Whether the pod of a retry prefers other nodes than those of the last five attempts whose pods exist. Default: false."""

    pod_metadata: PodTemplateMetadata | None = None
    """Labels and annotations of the pods, for every kind of work but `podTemplate`. Default: none."""

    pod_spec_patch: Annotated[JsonObject, Field(max_length=64)] | None = None
    """Changes to the spec of the pod, for every kind of work: objects are merged, lists of objects by `name`, other values are
    replaced, and null removes a field. The container of the activity is named `activity`, unless its definition names it. Can
    contain expressions as in `container`, in any field. Default: none."""

    sidecar: Sidecar | None = None
    """Gives any image heartbeats, large results and cancellation, by files. Default: none."""

    worker: Worker | None = None
    """A Temporal SDK worker that runs the activity."""

    failure_types: Annotated[list[FailureType], atomic_list(50)] = Field(default_factory=list)
    """Failure types by exit code; the first entry that matches applies. Default: the type of the error that the container
    reports."""

    @property
    def work(self) -> str:
        """What runs the activity: the name of the one field that is set, such as `container` or `podTemplate`."""
        return next(json_name(kind) for kind in (*WORK_KINDS, "from_") if getattr(self, kind) is not None)

    @property
    def may_overlap(self) -> bool:
        """Whether an attempt may start while the containers of the previous one are being stopped."""
        return self.pod_replacement_policy is PodReplacementPolicy.TERMINATING_OR_FAILED


class InputSpec(SpecModel):
    """Schema and default of an input."""

    schema_: JsonObject | None = None
    """JSON Schema that the input must match; checked before the run starts. Default: any value."""

    default: Json = None
    """Input if none is given; expressions in it are not evaluated. If both are objects, its fields are the defaults of single
    fields. Default: none."""


class Block(SpecModel):
    """A named sub-flow with its own parameters, steps and output."""

    rules = (
        Rule(
            "must have either `steps` or `from`",
            "has(self.from) ? !has(self.steps) || self.steps.size() == 0 : has(self.steps)",
            lambda block: not block.steps if block.from_ is not None else "steps" in block.model_fields_set,
        ),
    )

    name: Name
    """Name of the block; steps call it."""

    from_: BlockSource | None = None
    """A block of another Workflow, which a run copies when it starts, with what it calls. Other fields that are set here replace
    those of that block. Default: none."""

    params: InputSpec | None = None
    """Schema and default of the `input` of a call, which is `params` in expressions of the block."""

    services: Annotated[list[GroupService], map_list("name", MAX_SERVICES)] = Field(
        default_factory=list, exclude_if=not_
    )
    """Services that each call of the block starts before its steps, and stops after them. Expressions in the block read their
    addresses as `services.<name>.host`. Default: none."""

    steps: Annotated[list[Step], map_list("name", MAX_BLOCK_STEPS)] = Field(default_factory=list)
    """The steps, which run in order unless `needs` says otherwise. A block can call itself, to a limited depth."""

    max_concurrency: Positive | None = None
    """Maximum number of steps of the list that run at the same time; further ones start in the order of the list. A step with
    `forEach`, and one that calls a block, count as one. Default: no limit."""

    failure_policy: FailurePolicy | None = None
    """What the failure of a step does to the other steps of the list, before the block fails: CancelRunning cancels those that
    are running, FinishRunning lets them finish and starts no others, Continue runs every step that does not need a failed one.
    Default: the `failurePolicy` of the Workflow."""

    steps_timeout: TimeoutOrExpression | None = None
    """Maximum time of the steps: a duration such as `10m`, or an expression that returns one, such as `${params.limit}`. When it
    has passed, the steps are cancelled, and the block fails with a timeout. Default: no limit."""

    output: Json = None
    """Output of the block; any value, with expressions. Default: the output of the last step."""


class Handler(SpecModel):
    """A block that runs when the run fails, is cancelled, or ends."""

    block: Reference
    """Name of the block."""

    input: Json = None
    """Value of `params` in the block; any value, with expressions."""

    timeout: PositiveDuration = timedelta(minutes=10)
    """Maximum time of the block. It applies even if the run has timed out. Default: 10m."""


class WorkflowSpec(SpecModel):
    """A definition: activities and steps."""

    allowed_namespaces: Annotated[list[NamespaceChoice], set_list(100)] = Field(default_factory=list, exclude_if=not_)
    """Namespaces whose runs, Schedules and children can use this Workflow, and whose definitions can copy its activities and
    blocks (`from`); `*` stands for all. Default: only its own."""

    input: InputSpec | None = None
    """Schema and default of the input of a run. Default: any value."""

    limits: Annotated[list[LimitUse], map_list("name", MAX_LIMITS)] = Field(default_factory=list)
    """The WorkflowLimits that a run takes before it starts, and holds until it has ended. Until then, it is Pending."""

    workspaces: Annotated[list[Workspace], map_list("name", MAX_WORKSPACES)] = Field(
        default_factory=list, exclude_if=not_
    )
    """Volumes for files that the activities of a run share."""

    services: Annotated[list[GroupService], map_list("name", MAX_SERVICES)] = Field(
        default_factory=list, exclude_if=not_
    )
    """Services that a run starts before its steps, and stops after them, before compensations and handlers. Expressions read
    their addresses as `services.<name>.host`. Default: none."""

    activities: Annotated[list[Activity], map_list("name", MAX_ACTIVITIES)] = Field(default_factory=list)
    """The activities that steps refer to."""

    steps: Annotated[list[Step], map_list("name", MAX_STEPS)] = Field(default_factory=list)
    """The steps, which run in order unless `needs` says otherwise."""

    max_concurrency: Positive | None = None
    """Maximum number of steps of the list that run at the same time; further ones start in the order of the list. A step with
    `forEach`, and one that calls a block, count as one. Default: no limit."""

    failure_policy: FailurePolicy | None = None
    """What the failure of a step does to the other steps of the list, before the run fails: CancelRunning cancels those that are
    running, FinishRunning lets them finish and starts no others, Continue runs every step that does not need a failed one. Also
    the default of blocks, loops, and parallel steps. Default: CancelRunning."""

    steps_timeout: TimeoutOrExpression | None = None
    """Maximum time of the steps: a duration such as `1h`, or an expression that returns one, such as `${input.limit}`. When it
    has passed, the steps are cancelled, compensations, `onFailure` and `finally` run, and the run fails with the reason
    DeadlineExceeded. Unlike `runTimeout` of a run, it does not limit the handlers. Default: no limit."""

    blocks: Annotated[list[Block], map_list("name", MAX_BLOCKS)] = Field(default_factory=list)
    """Named sub-flows that steps call."""

    on_cancel: Handler | None = None
    """Runs when the run is cancelled. The cancellation does not apply to it."""

    on_failure: Handler | None = None
    """Runs when the run fails; the failure is `error` in its expressions."""

    finally_: Handler | None = None
    """Runs last, however the run ends, unless it is terminated."""

    output: Json = None
    """Output of a run; any value, with expressions. Default: the output of the last step."""

    def copied(self) -> Iterator[ActivitySource | BlockSource]:
        """Yield what the definition copies from other Workflows."""
        yield from (activity.from_ for activity in self.activities if activity.from_ is not None)
        yield from (block.from_ for block in self.blocks if block.from_ is not None)

    def block(self, name: str) -> Block | None:
        """Find a block.

        Args:
            name: Its name.

        Returns:
            The block, or None if it does not exist.
        """
        return next((block for block in self.blocks if block.name == name), None)

    def activity(self, name: str) -> Activity | None:
        """Find an activity.

        Args:
            name: Its name.

        Returns:
            The activity, or None if it does not exist.
        """
        return next((activity for activity in self.activities if activity.name == name), None)


class WorkflowStatus(StatusModel):
    """Observed status of a definition."""

    observed_generation: Large | None = None
    """The `metadata.generation` that this status describes."""

    conditions: Conditions = Field(default_factory=list)
    """`Ready`: runs can use the definition. If False, the message says what is wrong and where."""

    revision: Annotated[str, Field(max_length=253)] | None = None
    """Name of the WorkflowRevision with the newest definition that runs can use."""


class Workflow(Resource):
    """A reusable definition: activities and steps. WorkflowRuns run it."""

    info = KindInfo(
        plural="workflows",
        short_name="pwf",
        columns=(
            Column("Ready", condition_path("Ready", "status"), "Whether runs can use the definition"),
            Column("Reason", condition_path("Ready", "reason"), "Reason of the condition Ready"),
            Column("Message", condition_path("Ready", "message"), "What is wrong with it, and where", wide=True),
        ),
    )

    kind: Literal["Workflow"] = "Workflow"
    """Always `Workflow`."""

    spec: WorkflowSpec
    """Activities and steps."""

    status: WorkflowStatus = WorkflowStatus()
    """Observed status."""
