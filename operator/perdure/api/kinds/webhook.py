"""Webhook: an address where a sender starts or signals runs with signed HTTP requests."""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from perdure.api.fields import Expression, Json, Large, Positive, ResourceName, Template
from perdure.api.kinds.status import Conditions
from perdure.api.kinds.steps import WorkflowReference
from perdure.api.models import Column, KindInfo, Resource, SpecModel, StatusModel, condition_path
from perdure.api.rules import Rule
from perdure.api.times import PositiveDuration

HeaderName = Annotated[str, Field(min_length=1, max_length=128, pattern="^[A-Za-z0-9][-_A-Za-z0-9]*$")]
"""The name of an HTTP header; the case does not matter."""


class SecretKey(SpecModel):
    """A key of a Secret in the same namespace."""

    name: ResourceName
    """Name of the Secret. The operator must be allowed to read it: see docs/webhooks.md."""

    key: Annotated[str, Field(min_length=1, max_length=253, pattern="^[-._A-Za-z0-9]+$")] = "secret"
    """Key in the data of the Secret. Its value must have at least 16 bytes. Default: secret."""


class RequestSignature(SpecModel):
    """The signature that proves who sent a request: the HMAC-SHA-256 of the body, in hexadecimal digits."""

    secret: SecretKey
    """The secret that the sender shares."""

    header: HeaderName = "X-Hub-Signature-256"
    """Header with the signature, with or without the prefix `sha256=`. Default: X-Hub-Signature-256, as GitHub sends it."""

    timestamp_header: HeaderName | None = None
    """Header with the time of the request, in seconds since 1970. If set, the signature is of the text in this header, a dot,
    and the body. Default: none; the signature is of the body alone."""

    tolerance: PositiveDuration = timedelta(minutes=5)
    """Maximum difference between this time and the clock of the operator, such as `5m`. Requests that are older are rejected, so
    that nobody can replay them. Default: 5m."""


class WebhookStart(SpecModel):
    """The run that a request starts."""

    workflow: WorkflowReference
    """Workflow to run: a Workflow by `name`, or `type` and `taskQueue` of a workflow that Temporal SDK workers run."""

    input: Json = None
    """Input of the run; any value, with expressions. Default: the default input of the Workflow."""


class WebhookSignal(SpecModel):
    """The signal that a request sends."""

    name: Annotated[Template, Field(min_length=1)]
    """Name of the signal; text with expressions."""

    input: Json = None
    """Input of the signal; any value, with expressions. Default: none."""


class WebhookSpec(SpecModel):
    """Who may send requests, and what they start or signal.

    Expressions can use `body`, the JSON of the request, and `headers`, its headers with names in lower case.
    """

    rules = (
        Rule(
            "must have `start`, `signal`, or both (signal the open run, or start it first)",
            "has(self.start) || has(self.signal)",
            lambda spec: spec.start is not None or spec.signal is not None,
        ),
        Rule(
            "`workflowId` must be set for `signal`: it names the run",
            "!has(self.signal) || has(self.workflowId)",
            lambda spec: spec.signal is None or spec.workflow_id is not None,
            reason="FieldValueRequired",
        ),
    )

    signature: RequestSignature
    """How requests are signed. Requests without a valid signature are rejected."""

    when: Expression | None = None
    """Condition; the operator ignores requests for which it is false, such as `${body.action == 'opened'}`. Default: none."""

    delivery_id: Annotated[Template, Field(min_length=1)] | None = None
    """ID of the request, text with expressions. Requests with the same ID have one effect. Default: the header
    `X-GitHub-Delivery`; without it, or with `timestampHeader`, a hash of what was signed."""

    workflow_id: Annotated[Template, Field(min_length=1)] | None = None
    """Workflow ID of the run to start or signal, such as `order-${body.order}`; text with expressions. Default: the name of the
    started run."""

    start: WebhookStart | None = None
    """Starts a run."""

    signal: WebhookSignal | None = None
    """Sends a signal to the open run with the workflow ID. With `start`, starts the run first if none is open."""

    requests_per_minute: Annotated[int, Field(strict=True, ge=1, le=60_000, json_schema_extra={"format": "int32"})] = (
        600
    )
    """Maximum number of requests in a minute; further ones get the status 429. Default: 600."""


class WebhookStatus(StatusModel):
    """Whether the Webhook accepts requests."""

    observed_generation: Large | None = None
    """The `metadata.generation` that this status describes."""

    state_version: Positive | None = None
    """Version of the form in which the operator has stored this status; not set: 1. An operator that reads only lower versions
    leaves the object as it is."""

    conditions: Conditions = Field(default_factory=list)
    """`Ready`: the Webhook is valid, and the operator can read its secret. `NewerState`: only a newer version of the operator can
    read the status, so this one does not update it."""

    path: Annotated[str, Field(max_length=1024)] | None = None
    """Path of the HTTP API to which senders post: `/webhooks/<namespace>/<name>`."""


class Webhook(Resource):
    """An address where a sender starts or signals runs of the namespace with signed HTTP requests."""

    info = KindInfo(
        plural="webhooks",
        short_name="whk",
        columns=(
            Column("Ready", condition_path("Ready", "status"), "Whether it accepts requests"),
            Column("Reason", condition_path("Ready", "reason"), "Reason of the condition Ready"),
            Column("Path", ".status.path", "Path to which senders post"),
            Column(
                "Starts", ".spec.start.workflow['name','type']", "The Workflow or workflow type it starts", wide=True
            ),
            Column("Signals", ".spec.signal.name", "The signal that it sends", wide=True),
            Column("Message", condition_path("Ready", "message"), "What is wrong with it", wide=True),
        ),
    )

    kind: Literal["Webhook"] = "Webhook"
    """Always `Webhook`."""

    spec: WebhookSpec
    """Who may send requests, and what they start or signal."""

    status: WebhookStatus = WebhookStatus()
    """Whether the Webhook accepts requests."""
