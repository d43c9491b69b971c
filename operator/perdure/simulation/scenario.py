"""Scenarios: what a person writes about the world that a workflow is simulated in, and what is expected of it."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from perdure.api.common import API_VERSION, SpecModel
from perdure.api.durations import LONGEST, format_decimal_duration, parse_decimal_duration
from perdure.api.field_shapes import FieldShape
from perdure.api.fields import Count, FailureTypeName, Flag, Identifier, Json, Positive, ResourceName, Time
from perdure.api.rules import Rule, at_least_one_of, listed
from perdure.api.workflowrun import Phase

SPAN_MESSAGE = "must be a duration such as `90s`, `1h30m` or `30d`, or a number of seconds"
"""The sentence a person sees who wrote something else."""

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""When a simulated run starts, where the scenario does not say."""


def _read_span(value: Any) -> timedelta:
    if isinstance(value, timedelta):
        return value
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = min(timedelta(seconds=value), LONGEST)
            if seconds >= timedelta(0):
                return seconds
        elif isinstance(value, str):
            return parse_decimal_duration(value)
    except (ValueError, OverflowError):
        pass
    raise ValueError(SPAN_MESSAGE)


def _read_long_span(value: Any) -> timedelta:
    span = _read_span(value)
    if not span:
        raise ValueError("must be longer than `0s`")
    return span


Span = Annotated[timedelta, FieldShape(_read_span, {}, format_decimal_duration)]
"""A length of virtual time."""

PositiveSpan = Annotated[timedelta, FieldShape(_read_long_span, {}, format_decimal_duration)]
"""A length of virtual time that is not nothing."""


def _at_most_one(*fields: str) -> Rule:
    """Of several things that contradict each other, one may be said."""
    return Rule(
        f"must have at most one of {listed(fields)}",
        "",
        lambda model: sum(model.says(field) for field in fields) <= 1,
    )


class ScenarioModel(SpecModel):
    """Base of what stands in a scenario: unknown fields are mistakes."""

    def says(self, field: str) -> bool:
        """Whether a field was given, and is not just `false`."""
        return field in self.model_fields_set and getattr(self, field) is not False


class ScriptedFailure(ScenarioModel):
    """How an attempt or a child fails: what a container would write as its error document."""

    type: FailureTypeName | None = None
    """Type of the failure, which `catch` and retry policies compare. Default: by the exit code."""

    message: str | None = None
    """What went wrong. Default: what is said of the exit code."""

    details: Json = None
    """Any value that comes along. Default none."""

    non_retryable: Flag = False
    """Whether retry policies leave the failure alone. Default false."""

    next_retry_delay: Span | None = None
    """How long to wait before the next attempt, instead of what the retry policy says. Default none."""


class ScriptedHeartbeats(ScenarioModel):
    """The heartbeats of an attempt."""

    every: PositiveSpan
    """The gap between two of them; the first comes one gap after the start."""

    count: Count | None = None
    """How many there are before it falls silent. Default: for as long as it runs."""

    details: Json = None
    """What each of them says. Default nothing."""


class Reply(ScenarioModel):
    """What a scenario may say of activities and of children alike."""

    when_input: Json = None
    """Takes this entry only where the input fits: equal, or, of an object, equal in the fields that are named here.
    Default: every input."""

    after: Span = timedelta(0)
    """How long it takes. Default 0s."""

    output: Json = None
    """Its result. Default: null."""

    fail: ScriptedFailure | None = None
    """It fails, and how."""

    hang: Flag = False
    """It never ends by itself."""

    ignores_cancel: Flag = False
    """It continues when a stop is requested. Default: false, so it stops and is cancelled."""


class ScriptedAttempt(Reply):
    """How one attempt of an activity goes."""

    rules = (
        _at_most_one("output", "fail", "hang", "lost"),
        _at_most_one("hang", "lost", "exit_code"),
        _at_most_one("after", "hang"),
        _at_most_one("artifacts", "fail", "hang", "lost"),
        Rule(
            "`output` comes with exit code 0 only; leave `exitCode` out",
            "",
            lambda entry: not entry.says("output") or not entry.exit_code,
        ),
        Rule(
            "`fail` comes with another exit code than 0; leave `exitCode` out",
            "",
            lambda entry: entry.fail is None or entry.exit_code != 0,
        ),
    )

    starts_after: Span = timedelta(0)
    """How long the attempt waits for its start: for a node, an image, a quota. Default 0s."""

    heartbeats: ScriptedHeartbeats | None = None
    """Its heartbeats, where the activity has a heartbeat timeout. Default: as many as are needed; with `hang`, none."""

    lost: Flag = False
    """The infrastructure loses it: retried without using up an attempt."""

    artifacts: dict[str, Count] | None = None
    """The output artifacts that it leaves, with their sizes in bytes. Default: all that the activity has, of 1024 bytes each."""

    exit_code: Annotated[int, Field(strict=True, ge=0, le=255)] | None = None
    """How its container ends; the failure's type comes from `failureTypes`, or is `ExitCode<n>`. Default 0, or 1 with
    `fail`."""


class ScriptedChild(Reply):
    """How a child goes that is not simulated itself."""

    rules = (_at_most_one("output", "fail", "hang"), _at_most_one("after", "hang"))


class ScriptedSignal(ScenarioModel):
    """A signal to the run."""

    at: Span = timedelta(0)
    """When, counted from the start. Default 0s."""

    name: Identifier
    """Name of the signal."""

    input: Json = None
    """What it carries. Default nothing."""

    sender: Annotated[str, Field(max_length=253)] = ""
    """The user who sends it, for approvals. Default: unknown."""

    workflow_id: Identifier | None = None
    """Which of the simulated runs gets it. Default: the one that the scenario is about."""


class Between(ScenarioModel):
    """A length of time that is not known exactly."""

    rules = (at_least_one_of("at_least", "at_most", message="must have `atLeast` or `atMost`"),)

    at_least: Span | None = None
    """It is not shorter. Default: it may be."""

    at_most: Span | None = None
    """It is not longer. Default: it may be."""


def _read_elapsed(value: Any) -> timedelta | Between:
    return Between.parse(value) if isinstance(value, dict) else _read_span(value)


Outcome = Literal["Completed", "Failed", "TimedOut", "Lost", "Cancelled", "Stopped", "Running"]
"""How an attempt ended; `Stopped`: the end of the run stopped it, `Running`: it has not ended."""


OUTCOMES = get_args(Outcome)


def _read_attempts(value: Any) -> int | list[str]:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, list) and all(outcome in OUTCOMES for outcome in value):
        return value
    raise ValueError(f"must be a number of attempts, or a list of how they ended: {', '.join(OUTCOMES)}")


class Expect(ScenarioModel):
    """What is expected of the simulation; what is not named may be anything."""

    phase: Phase | None = None
    """Where the last run of the chain stands at the end, such as `Completed`."""

    output: Json = None
    """The output, exactly; `null` is a value too."""

    failure_type: FailureTypeName | None = None
    """A type that the failure or one of its causes has."""

    elapsed: Annotated[timedelta | Between, FieldShape(_read_elapsed, {})] | None = None
    """How long it took, in virtual time: exactly, or `{atLeast, atMost}`."""

    runs: Positive | None = None
    """How many runs the chain had: more than one with continue-as-new and workflow retries."""

    attempts: dict[str, Annotated[int | list[str], FieldShape(_read_attempts, {})]] = Field(default_factory=dict)
    """By activity: how many attempts there were, or how each of them ended, in order."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        """Only a field that is left out expects nothing: a null output is expected as null."""
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None or key == "output"}
        return data


class Scenario(ScenarioModel):
    """The world that a workflow is simulated in: everything has a default."""

    api_version: Literal["perdure.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    """May be given, for editors; always `perdure.dev/v1alpha1`."""

    kind: Literal["Scenario"] = "Scenario"
    """May be given, for editors; always `Scenario`. No cluster knows this kind."""

    description: str = ""
    """What it shows, for people. Default nothing."""

    files: list[str] = Field(default_factory=list)
    """Manifests of what is simulated, relative to the scenario."""

    workflows: list[str] = Field(default_factory=list)
    """Manifests of further Workflows, for children."""

    retry_policies: list[str] = Field(default_factory=list)
    """Manifests of RetryPolicies."""

    workflow: ResourceName | None = None
    """Name of the Workflow or WorkflowRun that is simulated, where the files have several."""

    start_time: Time = EPOCH
    """When the run starts. Default 2026-01-01T00:00:00Z."""

    input: Json = None
    """Input of the run. Default: that of the WorkflowRun, or the Workflow's own default."""

    activities: dict[str, list[ScriptedAttempt]] = Field(default_factory=dict)
    """By activity, one entry for each attempt; the last one repeats. Default: they complete immediately with null."""

    children: dict[str, list[ScriptedChild]] = Field(default_factory=dict)
    """By Workflow, one entry for each child whose Workflow is in none of the files; the last one repeats."""

    signals: list[ScriptedSignal] = Field(default_factory=list)
    """Signals, in any order."""

    cancel_at: Span | None = None
    """When the run is asked to cancel itself. Default never."""

    terminate_at: Span | None = None
    """When the run is terminated. Default never."""

    pause_at: Span | None = None
    """When the run is paused. Default never."""

    unpause_at: Span | None = None
    """When the pause ends. Default never."""

    strict: Flag = False
    """Whether an activity or child that nothing is said about is a mistake. Default false."""

    max_events: Positive = 100_000
    """How many events and attempts there may be, of all runs together. Default 100000."""

    expect: Expect | None = None
    """What is expected; makes the scenario a test."""

    @field_validator("activities", "children")
    @classmethod
    def _not_empty(cls, scripts: dict[str, list[Any]], info: ValidationInfo) -> dict[str, list[Any]]:
        empty = [name for name, entries in scripts.items() if not entries]
        if empty:
            raise ValueError(
                f"`{empty[0]}` must have at least one entry; leave it out of `{info.field_name}` otherwise"
            )
        return scripts
