"""RetryPolicy: how failures are retried, shared by name or inline."""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from perdure.api.fields import Count, FailureTypeName, Large, Positive, ResourceName, Time, atomic_list, set_list
from perdure.api.kinds.status import Conditions
from perdure.api.models import Column, KindInfo, Resource, SpecModel, StatusModel, condition_path
from perdure.api.phases import CircuitState
from perdure.api.rules import Rule, exactly_one_of
from perdure.api.times import MILLISECOND, DecimalDuration, PositiveDuration, not_longer_cel

COEFFICIENT_PATTERN = "^[0-9]{1,6}([.][0-9]{1,9})?$"
"""A decimal number as a string: Kubernetes API conventions forbid floats."""


class Exponential(SpecModel):
    """Temporal's retry policy: each wait is the previous wait times a coefficient, up to a maximum.

    An empty object is Temporal's default: 1s, 2s, 4s, … up to 100s, forever.
    """

    rules = (
        Rule(
            "`maximumInterval` must not be shorter than `initialInterval`",
            "!has(self.maximumInterval) || " + not_longer_cel("self.initialInterval", "self.maximumInterval"),
            lambda policy: policy.maximum_interval is None or policy.initial_interval <= policy.maximum_interval,
        ),
        Rule(
            "`backoffCoefficient` must be at least 1: otherwise each wait would be shorter than the previous one",
            "double(self.backoffCoefficient) >= 1.0",
            lambda policy: float(policy.backoff_coefficient) >= 1,
        ),
    )

    initial_interval: PositiveDuration = timedelta(seconds=1)
    """Wait before the first retry, a duration such as `1s`. Default: 1s."""

    backoff_coefficient: Annotated[str, Field(min_length=1, max_length=16, pattern=COEFFICIENT_PATTERN)] = "2.0"
    """Factor between two waits: a decimal number of at least 1, as a string. "1" keeps all waits the same. Default: "2.0"."""

    maximum_interval: PositiveDuration | None = None
    """Maximum wait between two attempts, a duration such as `100s`. Default: 100 times `initialInterval`."""

    maximum_attempts: Count = 0
    """Maximum number of attempts, including the first. 0 means no limit, 1 means no retry. Default: 0."""

    non_retryable_error_types: Annotated[list[FailureTypeName], set_list(100)] = Field(default_factory=list)
    """Types of failures that are not retried; exact match. Default: none."""


class CloudScheduler(SpecModel):
    """Google Cloud Scheduler's retry configuration: waits double a number of times, then grow linearly.

    The wait starts at `minBackoffDuration`, doubles `maxDoublings` times, then grows by 2^maxDoublings times
    `minBackoffDuration`, and stays at `maxBackoffDuration`: 10s, 300s and 3 give 10, 20, 40, 80, 160, 240, 300, 300.
    """

    rules = (
        Rule(
            "`minBackoffDuration` must not be longer than `maxBackoffDuration`",
            not_longer_cel("self.minBackoffDuration", "self.maxBackoffDuration", decimal=True),
            lambda policy: policy.min_backoff_duration // MILLISECOND <= policy.max_backoff_duration // MILLISECOND,
        ),
    )

    retry_count: Annotated[int, Field(strict=True, ge=0, le=5, json_schema_extra={"format": "int32"})] = 0
    """Number of retries, 0 to 5. If both this and `maxRetryDuration` are set, retries end when both limits are reached.
    Default: 0, which means none, or, with `maxRetryDuration`, as many as fit, at most 5."""

    max_retry_duration: DecimalDuration = timedelta(0)
    """How long failures are retried, counted from the first attempt; a duration such as `1h`, or decimal seconds such as
    `3.5s`. Default: 0s, no limit."""

    min_backoff_duration: DecimalDuration = timedelta(seconds=5)
    """Wait before the first retry; a duration or decimal seconds. Default: 5s."""

    max_backoff_duration: DecimalDuration = timedelta(hours=1)
    """Maximum wait between two attempts; a duration or decimal seconds. Default: 1h."""

    max_doublings: Annotated[int, Field(strict=True, ge=0, le=1000, json_schema_extra={"format": "int32"})] = 5
    """How many times the wait doubles before it grows linearly, 0 to 1000. Default: 5."""


class CircuitBreaker(SpecModel):
    """Stops attempts for a while if too many failed in a row, so that a failing service can recover.

    The breaker counts the failures of everything that uses the policy together. Failures that are not retried do not count.
    """

    failure_threshold: Positive = 5
    """Number of failures in a row that open the circuit. Default: 5."""

    open_duration: PositiveDuration = timedelta(seconds=60)
    """How long the circuit stays open, a duration such as `60s`. Attempts wait until then; afterwards one attempt at a time
    starts. Default: 60s."""

    success_threshold: Positive = 2
    """How many of these attempts must succeed to close the circuit. One failure opens it again. Default: 2."""


class RetryRules(SpecModel):
    """How waits between attempts are computed."""

    exponential: Exponential | None = None
    """Temporal's policy: exponential backoff. An empty object is Temporal's default."""

    cloud_scheduler: CloudScheduler | None = None
    """Google Cloud Scheduler's policy: doubling, then linear backoff."""

    maximum_losses: Count | None = None
    """Maximum number of attempts of an activity in a pod that can be lost to the infrastructure, such as an eviction, and are
    repeated without counting as attempts. The activity fails with `TooManyLosses` at the next one; 0 repeats none.
    Runs ignore it. Default: no limit."""


class RetryPolicySpec(RetryRules):
    """How failures are retried: exactly one of `exponential` and `cloudScheduler`."""

    rules = (exactly_one_of("exponential", "cloud_scheduler"),)

    circuit_breaker: CircuitBreaker | None = None
    """Stops attempts while the service that they call is down. Default: none."""


class RetryPolicyChoice(RetryRules):
    """A RetryPolicy by name, or an inline policy: exactly one of `name`, `exponential` and `cloudScheduler`.

    The policy is resolved when the activity or run is scheduled. Later changes of a RetryPolicy do not affect it.
    """

    rules = (
        exactly_one_of("name", "exponential", "cloud_scheduler"),
        Rule(
            "`maximumLosses` must not be set with `name`: it belongs in the RetryPolicy",
            "!(has(self.name) && has(self.maximumLosses))",
            lambda choice: choice.name is None or choice.maximum_losses is None,
        ),
    )

    name: ResourceName | None = None
    """Name of a RetryPolicy in the same namespace. Only a RetryPolicy can have a circuit breaker, because everything that uses
    it shares the state of the breaker."""


class Circuit(StatusModel):
    """State of the circuit breaker."""

    state: CircuitState = CircuitState.CLOSED
    """Whether attempts can start: Closed, Open or HalfOpen."""

    consecutive_failures: Count = 0
    """Number of attempts that failed in a row."""

    consecutive_successes: Count = 0
    """While HalfOpen: number of attempts that succeeded in a row."""

    opened_at: Time | None = None
    """When the circuit last opened."""

    open_until: Time | None = None
    """While Open: when the next attempt can start."""

    trial: Annotated[str, Field(max_length=512)] | None = None
    """While HalfOpen: the attempt that is running, as `<run>/<its UID>/<event>/<attempt>`, where the event is the one that
    scheduled the activity."""

    last_failure_time: Time | None = None
    """When the breaker counted the last failure."""

    counted: Annotated[list[Annotated[str, Field(max_length=512)]], atomic_list(100)] = Field(default_factory=list)
    """The last attempts that the breaker counted, so that it counts none twice."""


class RetryPolicyStatus(StatusModel):
    """Observed status of a policy."""

    observed_generation: Large | None = None
    """The `metadata.generation` that this status describes."""

    state_version: Positive | None = None
    """Version of the form in which the operator has stored this status; not set: 1. An operator that reads only lower versions
    leaves the object as it is."""

    conditions: Conditions = Field(default_factory=list)
    """`Ready`: the policy is valid. `CircuitClosed`: its circuit breaker lets attempts start."""

    circuit: Circuit | None = None
    """State of the circuit breaker, if the policy has one."""

    preview: Annotated[list[DecimalDuration], atomic_list(20)] = Field(default_factory=list)
    """The first waits that the policy produces. The message of the condition `Ready` says how many retries there are."""

    waits: Annotated[str, Field(max_length=256)] = ""
    """The waits between attempts in short form, for the column WAITS: `1s 2s 4s 8s 16s …`."""


class RetryPolicy(Resource):
    """How failures are retried. Activities, runs and Schedules share a policy by name, so that one change applies everywhere."""

    info = KindInfo(
        plural="retrypolicies",
        short_name="rpol",
        columns=(
            Column("Ready", condition_path("Ready", "status"), "Whether the policy is valid"),
            Column("Circuit", ".status.circuit.state", "State of the circuit breaker"),
            Column("Waits", ".status.waits", "The waits between attempts"),
            Column("Message", condition_path("Ready", "message"), "What is wrong with it", wide=True),
        ),
        selectable=(".status.circuit.state",),
    )

    kind: Literal["RetryPolicy"] = "RetryPolicy"
    """Always `RetryPolicy`."""

    spec: RetryPolicySpec
    """How failures are retried."""

    status: RetryPolicyStatus = RetryPolicyStatus()
    """Observed status."""
