"""Scenarios: the environment in which a workflow is simulated, and the expected outcome, as users write them."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, ValidationInfo, field_validator, model_validator

from perdure.api.fields import (
    Count,
    FailureTypeName,
    FieldShape,
    Flag,
    Identifier,
    Json,
    JsonObject,
    Positive,
    ResourceName,
    Time,
)
from perdure.api.kinds.workflow import MAX_CACHE_KEY
from perdure.api.labels import API_VERSION
from perdure.api.models import SpecModel
from perdure.api.phases import Phase
from perdure.api.rules import Rule, at_least_one_of, listed
from perdure.api.times import LONGEST, format_decimal_duration, parse_decimal_duration

SPAN_MESSAGE = "must be a duration such as `90s`, `1h30m` or `30d`, or a number of seconds"
"""The error message for other values."""

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""The default start time of a simulated run."""


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
"""A positive length of virtual time."""


def _at_most_one(*fields: str) -> Rule:
    """A rule that at most one of several contradictory fields is set."""
    return Rule(
        f"must have at most one of {listed(fields)}",
        "",
        lambda model: sum(model.sets(field) for field in fields) <= 1,
    )


class ScenarioModel(SpecModel):
    """Base class of the models in a scenario, which reject unknown fields."""

    def sets(self, field: str) -> bool:
        """Whether a field is set, and not just to `false`."""
        return field in self.model_fields_set and getattr(self, field) is not False


class ScriptedFailure(ScenarioModel):
    """The failure of an attempt or a child, as a container would write it in its error document."""

    type: FailureTypeName | None = None
    """Type of the failure, for `catch` and retry policies. Default: derived from the exit code."""

    message: str | None = None
    """Message of the failure. Default: derived from the exit code."""

    details: Json = None
    """Details of the failure, any value. Default none."""

    non_retryable: Flag = False
    """Whether retry policies do not apply to the failure. Default false."""

    next_retry_delay: Span | None = None
    """How long to wait before the next attempt, overriding the retry policy. Default none."""


class ScriptedHeartbeats(ScenarioModel):
    """The heartbeats of an attempt."""

    every: PositiveSpan
    """The interval between two heartbeats; the first one follows one interval after the start."""

    count: Count | None = None
    """The number of heartbeats before they stop. Default: as long as the attempt runs."""

    details: Json = None
    """The details of each heartbeat. Default none."""


class Reply(ScenarioModel):
    """The fields that activities and children share."""

    when_input: Json = None
    """Use this entry only if the input matches: it is equal, or, for an object, equal in the fields that are named here.
    Default: every input."""

    after: Span = timedelta(0)
    """How long it takes. Default 0s."""

    output: Json = None
    """Its result. Default: null."""

    fail: ScriptedFailure | None = None
    """Make it fail, with this failure."""

    hang: Flag = False
    """It never ends by itself."""

    ignores_cancel: Flag = False
    """Whether it keeps running when a stop is requested. Default false: it stops and is cancelled."""


class ScriptedAttempt(Reply):
    """The behavior of one attempt of an activity."""

    rules = (
        _at_most_one("output", "fail", "hang", "lost"),
        _at_most_one("hang", "lost", "exit_code"),
        _at_most_one("hang", "lost", "disrupted"),
        _at_most_one("after", "hang"),
        _at_most_one("artifacts", "fail", "hang", "lost"),
        Rule(
            "`output` requires exit code 0; remove `exitCode`",
            "",
            lambda entry: not entry.sets("output") or not entry.exit_code,
        ),
        Rule(
            "`fail` requires an exit code other than 0; remove `exitCode`",
            "",
            lambda entry: entry.fail is None or entry.exit_code != 0,
        ),
    )

    starts_after: Span = timedelta(0)
    """How long the attempt waits for a node, an image, or a quota before it starts. Default 0s."""

    heartbeats: ScriptedHeartbeats | None = None
    """Its heartbeats, if the activity has a heartbeat timeout. Default: as many as required; with `hang`, none."""

    lost: Flag = False
    """The infrastructure loses it: retried without using up an attempt."""

    disrupted: Flag = False
    """Its pod is deleted after `after`, as when its node is drained. Its container then ends with `exitCode`, by default 143 as
    after SIGTERM without a handler, or with `output` or `fail`."""

    artifacts: dict[str, Count] | None = None
    """The output artifacts that it leaves, with their sizes in bytes; `log.gz` is an archived log, and `result.json` a large
    result, instead of `output`. Default: all that the activity has, of 1024 bytes each, and a large `output`."""

    exit_code: Annotated[int, Field(strict=True, ge=0, le=255)] | None = None
    """Exit code of its container; the failure type comes from `failureTypes`, or is `ExitCode<n>`. Default 0, or 1 with
    `fail`."""


class ScriptedChild(Reply):
    """The behavior of a child that is not simulated itself."""

    rules = (_at_most_one("output", "fail", "hang"), _at_most_one("after", "hang"))


class EarlierResult(ScenarioModel):
    """A cached result that exists when the run starts."""

    key: Annotated[str, Field(min_length=1, max_length=MAX_CACHE_KEY)]
    """Its key."""

    output: Json = None
    """The result. Default: null."""

    age: Span = timedelta(0)
    """How old it is when the run starts. Default 0s."""


class ScriptedSignal(ScenarioModel):
    """A signal to the run."""

    at: Span = timedelta(0)
    """When it is sent, counted from the start. Default 0s."""

    name: Identifier
    """Name of the signal."""

    input: Json = None
    """Its input. Default none."""

    sender: Annotated[str, Field(max_length=253)] = ""
    """The user who sends it, for approvals. Default: unknown."""

    workflow_id: Identifier | None = None
    """The workflow ID of the simulated run that receives it. Default: the main run of the scenario."""


class Between(ScenarioModel):
    """A range for a length of time."""

    rules = (at_least_one_of("at_least", "at_most", message="must have `atLeast` or `atMost`"),)

    at_least: Span | None = None
    """The minimum. Default: no minimum."""

    at_most: Span | None = None
    """The maximum. Default: no maximum."""


def _read_elapsed(value: Any) -> timedelta | Between:
    return Between.parse(value) if isinstance(value, dict) else _read_span(value)


Outcome = Literal["Completed", "Failed", "TimedOut", "Lost", "Cancelled", "Stopped", "Running"]
"""The outcome of an attempt. `Stopped`: the end of the run stopped it; `Running`: it has not ended."""


OUTCOMES = get_args(Outcome)


def _read_attempts(value: Any) -> int | list[str]:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, list) and all(outcome in OUTCOMES for outcome in value):
        return value
    raise ValueError(f"must be a number of attempts, or a list of how they ended: {', '.join(OUTCOMES)}")


class Expect(ScenarioModel):
    """The expected outcome of the simulation. Fields that are not set accept any value."""

    phase: Phase | None = None
    """The phase of the last run of the chain at the end, such as `Completed`."""

    output: Json = None
    """The exact output; `null` is a value too."""

    failure_type: FailureTypeName | None = None
    """The type of the failure or of one of its causes."""

    elapsed: Annotated[timedelta | Between, FieldShape(_read_elapsed, {})] | None = None
    """The virtual time it took: an exact time, or `{atLeast, atMost}`."""

    runs: Positive | None = None
    """The number of runs in the chain: more than one with continue-as-new and workflow retries."""

    attempts: dict[str, Annotated[int | list[str], FieldShape(_read_attempts, {})]] = Field(default_factory=dict)
    """For each activity, the number of attempts or their outcomes in order."""

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        """Drop fields that are null, except `output`: a null output is expected as null."""
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None or key == "output"}
        return data


class ScheduledTime(ScenarioModel):
    """The Schedule that starts the run, and when."""

    name: ResourceName | None = None
    """Name of the Schedule in the files. Default: the only one."""

    scheduled_time: Time | None = None
    """The scheduled time of the run, which starts then: a time of the Schedule. Default: its first time from `startTime`."""

    triggered: Flag = False
    """Whether a user triggers the run: then `scheduledTime` is the time of the request, which can be any time. Default: false."""

    last_completion_result: Json = None
    """The output of the last completed run of the Schedule. Default: none."""

    last_failure: JsonObject | None = None
    """The failure of the previous run of the Schedule, as in the status of a run. Default: none."""


class Scenario(ScenarioModel):
    """The environment in which a workflow is simulated. Every field has a default."""

    api_version: Literal["perdure.dev/v1alpha1"] = API_VERSION  # type: ignore[assignment]
    """Optional, for editors; always `perdure.dev/v1alpha1`."""

    kind: Literal["Scenario"] = "Scenario"
    """Optional, for editors; always `Scenario`. This kind does not exist in clusters."""

    description: str = ""
    """A description for readers. Default none."""

    files: list[str] = Field(default_factory=list)
    """Paths of the manifests to simulate, relative to the scenario."""

    workflows: list[str] = Field(default_factory=list)
    """Paths of the manifests of further Workflows, for children."""

    retry_policies: list[str] = Field(default_factory=list)
    """Paths of the manifests of RetryPolicies."""

    workflow: Identifier | None = None
    """Name of the Workflow, WorkflowRun, or flow in Python to simulate, if the files contain several."""

    schedule: ScheduledTime | None = None
    """Simulate the run that a Schedule in the files starts. Default: no Schedule starts the run."""

    start_time: Time = EPOCH
    """When the run starts. Default 2026-01-01T00:00:00Z, or the scheduled time."""

    input: Json = None
    """Input of the run. Default: the input of the WorkflowRun, or the default of the Workflow."""

    activities: dict[str, list[ScriptedAttempt]] = Field(default_factory=dict)
    """For each activity, one entry per attempt; the last one repeats. Default: attempts complete immediately with null."""

    children: dict[str, list[ScriptedChild]] = Field(default_factory=dict)
    """For each Workflow that is not in any of the files, one entry per child; the last one repeats."""

    cached: dict[str, list[EarlierResult]] = Field(default_factory=dict)
    """For each activity with `cache`, the results of earlier runs. Default: none."""

    signals: list[ScriptedSignal] = Field(default_factory=list)
    """Signals, in any order."""

    cancel_at: Span | None = None
    """When the cancellation of the run is requested. Default never."""

    terminate_at: Span | None = None
    """When the run is terminated. Default never."""

    pause_at: Span | None = None
    """When the run is paused. Default never."""

    unpause_at: Span | None = None
    """When the pause ends. Default never."""

    strict: Flag = False
    """Whether an activity or child without an entry is an error. Default false."""

    max_events: Positive = 100_000
    """The maximum number of events and attempts of all runs together. Default 100000."""

    expect: Expect | None = None
    """The expected outcome, which makes the scenario a test."""

    @field_validator("activities", "children")
    @classmethod
    def _not_empty(cls, scripts: dict[str, list[Any]], info: ValidationInfo) -> dict[str, list[Any]]:
        empty = [name for name, entries in scripts.items() if not entries]
        if empty:
            raise ValueError(f"`{empty[0]}` must have at least one entry; remove it from `{info.field_name}` otherwise")
        return scripts
