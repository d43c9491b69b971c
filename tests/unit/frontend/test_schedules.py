"""Schedules of Temporal clients are described as by Temporal's server."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload, RetryPolicy
from temporalio.api.enums.v1 import TaskQueueKind
from temporalio.api.schedule.v1 import CalendarSpec, IntervalSpec, Range, Schedule, ScheduleSpec, StructuredCalendarSpec

from perdure.api import labels
from perdure.frontend.schedules import messages
from perdure.frontend.schedules.messages import ClientOptions, from_times, to_times
from perdure.frontend.schedules.rpcs import first_times
from perdure.schedule.calendar import (
    DAY_OF_MONTH,
    DAY_OF_WEEK,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    YEAR,
    Field,
    InvalidTimesError,
    Work,
)
from perdure.schedule.run_manifests import id_of, scheduled_run, workflow_id_of
from perdure.schedule.state import ScheduledRun, ScheduleState, Start
from unit.frontend.schedule_requests import asked, made_of, seconds

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=UTC)
FIELDS: dict[str, Field] = {
    "second": SECOND,
    "minute": MINUTE,
    "hour": HOUR,
    "day_of_month": DAY_OF_MONTH,
    "month": MONTH,
    "day_of_week": DAY_OF_WEEK,
    "year": YEAR,
}


def next_times(obj: dict[str, Any], count: int) -> list[datetime]:
    return list(islice(messages.upcoming(obj, NOW, Work()), count))


@st.composite
def ranges(draw: st.DrawFn, field: Field) -> list[Range]:
    found = []
    for _ in range(draw(st.integers(1, 2))):
        start, end = sorted(draw(st.tuples(*2 * [st.integers(field.low, field.high)])))
        found.append(Range(start=start, end=end, step=draw(st.integers(1, 9))))
    return found


calendars = st.builds(
    StructuredCalendarSpec,
    **{name: ranges(field) for name, field in FIELDS.items()},
    comment=st.sampled_from(["", "because"]),
)


@given(st.lists(calendars, max_size=1), st.lists(calendars, max_size=1))
def test_structured_calendars_survive_conversion(included: list[Any], excluded: list[Any]) -> None:
    sent = ScheduleSpec(structured_calendar=included, exclude_structured_calendar=excluded)
    obj = made_of(Schedule(spec=sent, action=asked().action))
    assert from_times(messages.spec_of(obj)) == sent


def test_all_fields_of_a_client_survive_conversion() -> None:
    said = asked(interval=[IntervalSpec(interval=seconds(3600), phase=seconds(60))], timezone_name="Europe/Berlin")
    said.spec.start_time.FromDatetime(NOW)
    said.spec.end_time.FromDatetime(NOW + timedelta(days=9))
    said.spec.jitter.CopyFrom(seconds(80))
    start = said.action.start_workflow
    start.task_queue.kind = TaskQueueKind.TASK_QUEUE_KIND_NORMAL
    start.input.payloads.append(Payload(metadata={"encoding": b"binary/plain"}, data=b"\x00"))
    start.workflow_run_timeout.CopyFrom(seconds(7200))
    start.workflow_task_timeout.CopyFrom(seconds(30))
    start.memo.fields["note"].CopyFrom(Payload(metadata={"encoding": b"json/plain"}, data=b'"why"'))
    start.header.fields["trace"].CopyFrom(Payload(data=b"bar"))
    start.search_attributes.indexed_fields["Key"].CopyFrom(
        Payload(metadata={"encoding": b"json/plain", "type": b"Keyword"}, data=b'"k"')
    )
    start.retry_policy.CopyFrom(
        RetryPolicy(
            initial_interval=seconds(2), backoff_coefficient=3, maximum_interval=seconds(60), maximum_attempts=3
        )
    )
    said.policies.overlap_policy = 2
    said.policies.catchup_window.CopyFrom(seconds(300))
    said.policies.pause_on_failure = True
    said.state.notes, said.state.paused, said.state.limited_actions, said.state.remaining_actions = "why", True, True, 5
    assert messages.described(made_of(said)) == said


def test_cron_lines_are_stored_unchanged_and_described_as_calendars() -> None:
    obj = made_of(asked(cron_string=["0 12 * * MON-WED", "@every 90m/5m"]))
    described = messages.described(obj)
    [calendar] = described.spec.structured_calendar
    assert [(r.start, r.end, r.step) for r in calendar.day_of_week] == [(1, 3, 1)]
    assert [(r.start, r.end, r.step) for r in calendar.day_of_month] == [(1, 31, 1)]
    assert not calendar.year
    assert described.spec.interval == [IntervalSpec(interval=seconds(5400), phase=seconds(300))]
    described.policies.pause_on_failure = True
    changed = messages.changed_schedule(obj, described, {}, ClientOptions())
    assert changed["spec"]["cron"] == ["0 12 * * MON-WED", "@every 90m/5m"]
    assert changed["spec"]["pauseOnFailure"] is True


def test_without_a_workflow_id_runs_are_named_after_the_schedule() -> None:
    """The Web UI sends no workflow ID by default."""
    said = asked(cron_string=["@daily"])
    said.action.start_workflow.workflow_id = ""
    obj = made_of(said)
    assert "workflowId" not in obj["spec"]["workflowRunTemplate"]["spec"]
    assert messages.described(obj).action.start_workflow.workflow_id == obj["metadata"]["name"]


def test_structured_calendars_precede_string_calendars() -> None:
    structured = [
        StructuredCalendarSpec(**{name: [Range(start=1, end=1, step=1)] for name in FIELDS if name != "year"})
    ]
    both = {"calendar": [CalendarSpec(hour="5")], "structured_calendar": structured}
    excluded = {f"exclude_{name}": said for name, said in both.items()}
    described = from_times(messages.spec_of(made_of(asked(**both, **excluded))))
    for calendars_ in (described.structured_calendar, described.exclude_structured_calendar):
        assert [each.hour[0].start for each in calendars_] == [1, 5]


def test_string_calendars_have_temporals_meaning() -> None:
    times = to_times(ScheduleSpec(calendar=[CalendarSpec(hour="3,5-7/2", day_of_week="Fri-Mon")]))
    [written] = times["calendars"]
    assert written["minute"] == "0"
    described = from_times(messages.spec_of(made_of(asked(calendar=[CalendarSpec(day_of_week="Fri-Mon")]))))
    days = {day for r in described.structured_calendar[0].day_of_week for day in range(r.start, r.end + 1, r.step)}
    assert days == {5, 6, 0, 1}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda s: s.spec.interval.add(), "spec.interval[0].interval"),
        (lambda s: s.spec.interval.add(interval=seconds(5), phase=seconds(5)), "spec.interval[0].phase"),
        (lambda s: s.spec.structured_calendar.add(hour=[Range(start=5)]), "spec.structured_calendar[0].second"),
        (lambda s: setattr(s.policies, "keep_original_workflow_id", True), "policies.keep_original_workflow_id"),
        (lambda s: setattr(s.action.start_workflow, "cron_schedule", "@daily"), "start_workflow.cron_schedule"),
        (lambda s: setattr(s.action.start_workflow, "workflow_id", "x" * 2000), "start_workflow.workflow_id"),
        (lambda s: setattr(s.action.start_workflow, "workflow_id_reuse_policy", 3), "workflow_id_reuse_policy"),
        (lambda s: setattr(s.action.start_workflow.workflow_type, "name", ""), "start_workflow.workflow_type"),
        (lambda s: s.action.ClearField("start_workflow"), "action.start_workflow"),
        (lambda s: s.action.start_workflow.retry_policy.MergeFrom(RetryPolicy(maximum_attempts=-1)), "MaximumAttempts"),
    ],
)
def test_an_unsupported_field_is_rejected_by_name(change: Any, field: str) -> None:
    said = asked()
    change(said)
    with pytest.raises(ValueError, match=field.replace("[", r"\[").replace("]", r"\]")):
        made_of(said)


def test_1_the_catchup_window_has_temporals_default_and_minimum() -> None:
    made = made_of(asked())
    assert made["spec"]["catchupWindow"] == "365d"
    assert messages.described(made).policies.catchup_window == seconds(365 * 86_400)
    short = asked()
    short.policies.catchup_window.CopyFrom(seconds(0))
    assert made_of(short)["spec"]["catchupWindow"] == "10s"


def test_6_fractions_of_seconds_of_an_interval_are_ignored() -> None:
    sent = ScheduleSpec(interval=[IntervalSpec(interval=Duration(seconds=1, nanos=500_000_000))])
    assert to_times(sent)["intervals"] == [{"every": "1s"}]


def test_8_a_schedule_of_a_client_skips_and_repeats_times_as_temporal_at_clock_changes() -> None:
    assert made_of(asked())["spec"]["daylightSaving"] == {"skipped": "Skip", "repeated": "Both"}


@pytest.mark.parametrize("empty", FIELDS)
def test_9_an_empty_field_other_than_the_year_is_rejected(empty: str) -> None:
    full = {field: [Range(start=allowed.low)] for field, allowed in FIELDS.items() if field != empty}
    spec = ScheduleSpec(structured_calendar=[StructuredCalendarSpec(**full)])  # type: ignore[arg-type]
    if empty == "year":
        assert to_times(spec)["calendars"][0]["year"] == "*"
        return
    with pytest.raises(ValueError, match=rf"structured_calendar\[0\].{empty}: is empty"):
        to_times(spec)


def test_a_pause_in_the_status_is_shown_with_its_reason_as_the_note() -> None:
    obj = made_of(asked())
    obj["status"] = {"paused": {"by": "Failure", "reason": "run `x` is Failed", "time": "2026-11-21T13:30:00Z"}}
    assert messages.described(obj).state.paused
    assert messages.described(obj).state.notes == "run `x` is Failed"


def test_remaining_actions_are_read_from_a_current_status() -> None:
    said = asked(interval=[IntervalSpec(interval=seconds(60))])
    said.state.limited_actions, said.state.remaining_actions = True, 5
    obj = made_of(said)
    obj["status"] = {"observedGeneration": 1, "remainingActions": 2}
    assert messages.described(obj).state.remaining_actions == 2
    assert len(messages.info(obj, next_times(obj, 10)).future_action_times) == 2
    obj["metadata"]["generation"] = 2
    assert messages.described(obj).state.remaining_actions == 5


def test_remaining_actions_are_shown_without_limited_actions() -> None:
    said = asked(interval=[IntervalSpec(interval=seconds(60))])
    said.state.remaining_actions = 30
    obj = made_of(said)
    assert messages.described(obj).state == said.state
    assert len(messages.info(obj, next_times(obj, 10)).future_action_times) == 10
    said.state.remaining_actions = 0
    changed = messages.changed_schedule(obj, said, {}, messages.client_options(obj))
    assert messages.described(changed).state == said.state


@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(),
        RetryPolicy(maximum_attempts=1, maximum_interval=seconds(100)),
        RetryPolicy(initial_interval=seconds(1), backoff_coefficient=2),
        RetryPolicy(initial_interval=seconds(7)),
    ],
)
def test_a_retry_policy_is_described_with_its_defaults(policy: RetryPolicy) -> None:
    """SDKs read an absent coefficient as zero, and reject it when they send the policy back."""
    said = asked()
    said.action.start_workflow.retry_policy.CopyFrom(policy)
    first = policy.initial_interval.seconds or 1
    assert messages.described(made_of(said)).action.start_workflow.retry_policy == RetryPolicy(
        initial_interval=seconds(first),
        backoff_coefficient=2,
        maximum_interval=seconds(100 * first),
        maximum_attempts=policy.maximum_attempts,
    )


def test_recent_actions_have_workflow_ids() -> None:
    obj = made_of(asked())
    obj["status"] = {
        "counts": {"actions": 1},
        "recentActions": [
            {
                "actualTime": "2026-11-21T13:30:01Z",
                "scheduledTime": "2026-11-21T13:30:00Z",
                "workflowRun": "nightly-20261121t133000z",
                "runId": "r-1",
                "status": "Completed",
            }
        ],
    }
    [action] = messages.info(obj, next_times(obj, 10)).recent_actions
    assert action.start_workflow_result.workflow_id == "report-2026-11-21T13:30:00Z"
    assert action.start_workflow_status == 2
    assert messages.entry(obj, next_times(obj, 5)).info.workflow_type.name == "Report"


def test_a_run_that_does_not_exist_yet_is_not_listed() -> None:
    obj = made_of(asked())
    time = "2026-11-21T13:30:00Z"
    runs = [
        {"workflowRun": "gone", "runId": "r-1", "status": "Completed"},
        {"workflowRun": "refused", "status": "Refused"},
        {"workflowRun": "made", "status": "Running"},
        {"workflowRun": "to-be-made", "status": "Running"},
    ]
    obj["status"] = {
        "recentActions": [{"scheduledTime": time, "actualTime": time, **run} for run in runs],
        "runningWorkflows": [{"workflowRun": "made"}, {"workflowRun": "to-be-made"}],
    }
    reported = messages.info(messages.with_runs(obj, {"made": "r-3"}.get), [])
    assert [each.start_workflow_result.run_id for each in reported.recent_actions] == ["r-1", "", "r-3"]
    assert [each.run_id for each in reported.running_workflows] == ["r-3"]
    assert len(obj["status"]["runningWorkflows"]) == 2


def test_20_ten_recent_and_ten_future_actions_are_described_and_five_of_each_listed() -> None:
    obj = made_of(asked(interval=[IntervalSpec(interval=seconds(60))]))
    done = [
        {
            "actualTime": f"2026-11-21T13:{minute:02}:00Z",
            "scheduledTime": f"2026-11-21T13:{minute:02}:00Z",
            "workflowRun": f"nightly-20261121t13{minute:02}00z",
            "status": "Completed",
        }
        for minute in range(12)
    ]
    obj["status"] = {"counts": {"actions": 12}, "recentActions": done}
    for reported, count in (
        (messages.info(obj, next_times(obj, 10)), 10),
        (messages.entry(obj, next_times(obj, 5)).info, 5),
    ):
        recent = [action.schedule_time.ToDatetime().minute for action in reported.recent_actions]
        assert recent == list(range(12 - count, 12))
        future = [time.ToDatetime().minute for time in reported.future_action_times]
        assert future == list(range(1, count + 1))


@pytest.mark.parametrize("request_id", ["", "asked"])
@pytest.mark.parametrize("attempt", [1, 3])
@pytest.mark.parametrize("base", ["report", None])
def test_the_workflow_id_of_a_run_is_derived_from_its_name(request_id: str, attempt: int, base: str | None) -> None:
    obj = made_of(asked())
    if base is None:
        del obj["spec"]["workflowRunTemplate"]["spec"]["workflowId"]
    start = Start(nominal=NOW, actual=NOW, request=request_id)
    run = ScheduledRun(name=start.run_name("nightly", attempt), start=start, started=NOW, attempt=attempt)
    made = scheduled_run(obj, run, ScheduleState(cursor=NOW, handled_after=NOW))
    found = made["spec"].get("workflowId", made["metadata"]["name"])
    assert found == workflow_id_of(run.name, "nightly", base)


def test_a_code_run_gets_the_fields_of_the_client() -> None:
    said = asked()
    said.action.start_workflow.memo.fields["note"].CopyFrom(
        Payload(metadata={"encoding": b"json/plain"}, data=b'"why"')
    )
    start = Start(nominal=NOW, actual=NOW)
    run = ScheduledRun(name=start.run_name("nightly"), start=start, started=NOW)
    made = scheduled_run(made_of(said), run, ScheduleState(cursor=NOW, handled_after=NOW, result={"n": 1}))
    reported = made["metadata"]["annotations"][labels.START_ANNOTATION]
    assert reported == '{"identity":"temporal-scheduler-shop-nightly","memo":{"note":"why"}}', "as on Temporal's server"


@pytest.mark.parametrize("schedule_id", ["Nightly", "a/b", "ünïcode", "x" * 300, "nightly"])
def test_a_schedule_id_can_be_any_text(schedule_id: str) -> None:
    obj = made_of(asked(), schedule_id)
    assert id_of(obj) == schedule_id
    assert len(obj["metadata"]["name"]) <= 220
    assert (obj["metadata"]["name"] == schedule_id) == (schedule_id == "nightly")


def test_filters_support_id_pause_and_search_attributes() -> None:
    find = messages.lookup(made_of(asked(), search_attributes={"Team": "accounts"}))
    assert [find(name) for name in ("ScheduleId", "TemporalSchedulePaused", "Team", "Other")] == [
        "nightly",
        False,
        "accounts",
        None,
    ]


def test_listed_times_include_jitter_and_are_never_early() -> None:
    obj = made_of(asked(interval=[IntervalSpec(interval=seconds(60))], jitter=seconds(30)))
    times = list(islice(messages.between(obj, messages.spec_of(obj), NOW, Work()), 20))
    assert times == sorted(times)
    assert all(NOW < time <= NOW + timedelta(minutes=21) for time in times)
    assert len({time.second for time in times}) > 1


def test_days_that_depend_on_the_month_are_described_as_strings() -> None:
    described = from_times(messages.spec_of(made_of(asked(cron_string=["0 6 L * *", "0 7 * * MON#1"]))))
    assert [each.day_of_month for each in described.calendar] == ["L", "*"]
    assert [each.day_of_week for each in described.calendar] == ["*", "MON#1"]
    assert not described.structured_calendar
    assert to_times(described)["calendars"][0]["dayOfMonth"] == "L"


def sparse() -> dict[str, Any]:
    """A schedule of every ten seconds, of which only the last of each day is not excluded."""
    days = {"day_of_month": [Range(start=1, end=31)], "month": [Range(start=1, end=12)], "day_of_week": [Range(end=6)]}
    tens = Range(end=59, step=10)
    exclude = [
        StructuredCalendarSpec(second=[tens], minute=[Range(end=59)], hour=[Range(end=22)], **days),
        StructuredCalendarSpec(second=[tens], minute=[Range(end=58)], hour=[Range(start=23)], **days),
        StructuredCalendarSpec(
            second=[Range(end=40, step=10)], minute=[Range(start=59)], hour=[Range(start=23)], **days
        ),
    ]
    return made_of(asked(interval=[IntervalSpec(interval=seconds(10))], exclude_structured_calendar=exclude))


def test_excluded_times_of_intervals_are_skipped_by_days() -> None:
    obj, work = sparse(), Work()
    found = list(islice(messages.upcoming(obj, NOW, work), 1_000))
    assert found == [datetime(2026, 11, 21, 23, 59, 50, tzinfo=UTC) + timedelta(days=day) for day in range(1_000)]
    assert work.total < 10_000


def test_all_searches_of_a_request_share_a_budget() -> None:
    obj, work = sparse(), Work(1_000)
    assert 0 < len(list(islice(messages.upcoming(obj, NOW, work), 1_000))) < 1_000
    assert list(messages.upcoming(obj, NOW, work)) == []
    with pytest.raises(InvalidTimesError, match="more than 1,000 steps"):
        list(messages.between(obj, messages.spec_of(obj), NOW, work))


async def test_searches_yield_to_the_event_loop() -> None:
    searching = asyncio.create_task(first_times(messages.upcoming(sparse(), NOW, Work()), 10))
    turns = 0
    while not searching.done():
        turns += 1
        await asyncio.sleep(0)
    assert len(await searching) == 10
    assert turns >= 10
