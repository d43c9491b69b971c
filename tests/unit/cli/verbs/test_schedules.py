"""The output for Schedules, and checks of `schedule create` before any request."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import yaml
from click.testing import Result

from perdure.api.kinds.operation import OperationSpec
from perdure.api.labels import CLIENT_ANNOTATION, SCHEDULE_ID_ANNOTATION
from perdure.api.names import schedule_name
from perdure.cli.inputs import parse_days
from perdure.kube import clock
from perdure.view.page import ASCII, Page
from perdure.view.schedules import description, table
from support.apiserver import ApiServer, items
from support.cli import perdure

PAGE = Page(glyphs=ASCII, width=200, now=clock.now(), program="perdure")


def schedule(spec: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "nightly", "namespace": "shop"}, "spec": spec, "status": status}


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def shown(found: dict[str, Any], *runs: dict[str, Any]) -> str:
    return "\n".join(line.plain for line in description(found, PAGE, runs))


NIGHTLY = {"cron": ["30 2 * * *"], "workflowRunTemplate": {"spec": {"workflow": {"name": "report"}}}}
READY = condition("Ready", "True", "Accepted")
PENDING: dict[str, Any] = {
    "metadata": {"name": "nightly-1", "namespace": "shop", "uid": "u-1"},
    "status": {"conditions": [condition("Succeeded", "Unknown", "WorkflowNotFound", "there is no Workflow `x`")]},
}


def test_an_invalid_spec_is_shown_unchanged() -> None:
    reported = "spec.cron[0]: `0 25 * * *`: `hour` is `25`: must be hours 0 to 23"
    broken = schedule(
        {"cron": ["0 25 * * *"], "calendars": [{"hour": "6"}], "timeZone": "Asia/Tokyo"},
        conditions=[condition("Ready", "False", "InvalidSpec", reported)],
    )
    lines = shown(broken).splitlines()
    assert lines[0] == "nightly  InvalidSpec"
    assert lines[1] == '  when      0 25 * * *; {"hour": "6"}  (Asia/Tokyo)'
    assert f"  ready     {reported}" in lines
    assert not {"Next", "Last"} & set(lines)


@pytest.mark.parametrize(
    ("run", "want"),
    [
        (PENDING, "Pending     nightly-1  WorkflowNotFound: there is no Workflow `x`"),
        ({**PENDING, "status": {"phase": "Paused"}}, "Paused      nightly-1"),
        ({**PENDING, "status": {"phase": "ContinuedAsNew"}}, "Running     nightly-1"),
        ({**PENDING, "metadata": {**PENDING["metadata"], "uid": "another"}}, "Running     nightly-1"),
        ({**PENDING, "metadata": {**PENDING["metadata"], "namespace": "another"}}, "Running     nightly-1"),
    ],
    ids=["pending", "paused", "continued by another", "made again", "of another namespace"],
)
def test_an_open_run_is_shown_with_its_current_phase(run: dict[str, Any], want: str) -> None:
    action = {
        "scheduledTime": "2026-01-01T00:00:00Z",
        "actualTime": "2026-01-01T00:00:00Z",
        "workflowRun": "nightly-1",
        "runId": "u-1",
        "status": "Running",
    }
    found = schedule({"cron": ["@daily"]}, conditions=[READY], recentActions=[action])
    assert shown(found, run).splitlines()[-1] == f"  2026-01-01T00:00:00Z  {want}"


def test_the_list_shows_that_a_run_cannot_start() -> None:
    found = schedule(
        {"cron": ["@daily"]}, conditions=[READY], active=1, runningWorkflows=[{"workflowRun": "nightly-1"}]
    )
    assert table([found], PAGE, [PENDING])[1].plain.endswith("  1 (Pending: WorkflowNotFound)")
    assert table([found], PAGE)[1].plain.endswith("  1")


def test_a_wide_list_and_the_description_show_the_schedule_id_of_temporal_clients() -> None:
    found = schedule(NIGHTLY, conditions=[READY])
    assert table([found], PAGE, wide=True)[1].plain.endswith("  nightly")
    assert not any(line.startswith("  id ") for line in shown(found).splitlines())
    found["metadata"]["annotations"] = {SCHEDULE_ID_ANNOTATION: "Nightly_Invoices"}
    heading, line = (each.plain.split() for each in table([found], PAGE, wide=True))
    assert (heading[-1], line[-1]) == ("ID", "Nightly_Invoices")
    assert table([found], PAGE)[0].plain.split()[-1] == "ACTIVE"
    assert shown(found).splitlines()[1] == "  id        Nightly_Invoices"


NAMED = schedule_name("Nightly_Invoices")
SCHEDULES = "/apis/perdure.dev/v1alpha1/namespaces/shop/schedules"


@pytest.fixture
def invoices(server: ApiServer) -> ApiServer:
    """A cluster with a Schedule that a Temporal client has created."""
    made = schedule(NIGHTLY, conditions=[READY])
    made["metadata"] |= {"name": NAMED, "uid": "u", "annotations": {SCHEDULE_ID_ANNOTATION: "Nightly_Invoices"}}
    server.answers |= {f"{SCHEDULES}/{NAMED}": made, "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns": items()}
    return server


def call(*words: str) -> Result:
    return perdure("schedule", *words)


@pytest.mark.usefixtures("invoices")
@pytest.mark.parametrize("name", ["Nightly_Invoices", NAMED])
def test_a_schedule_of_a_temporal_client_is_selected_by_id_or_name(name: str) -> None:
    assert call("describe", name).stdout.startswith(f"{NAMED}  Running\n  id        Nightly_Invoices\n")
    assert call("next", name, "--count", "1").exit_code == 0


def test_output_for_a_schedule_of_a_temporal_client_names_its_id(invoices: ApiServer) -> None:
    times = ("--start-time", "2026-11-01", "--end-time", "2026-11-02")
    for verb, *options in (("pause",), ("unpause",), ("trigger",), ("backfill", *times)):
        assert call(verb, "Nightly_Invoices", *options, "--no-wait").exit_code == 0
    assert {each["spec"]["target"]["name"] for each in invoices.created} == {NAMED}
    assert call("delete", "Nightly_Invoices").exit_code == 0
    assert invoices.deleted == [NAMED]


@pytest.mark.parametrize(
    ("date", "start", "end"),
    [
        ("2026-10-25", "2026-10-24T22:00:00Z", "2026-10-25T22:59:59Z"),  # 25 hours in Berlin
        ("2026-11-01..2026-11-07", "2026-10-31T23:00:00Z", "2026-11-07T22:59:59Z"),
    ],
)
def test_a_backfill_of_days_is_in_the_zone_of_the_schedule(
    invoices: ApiServer, date: str, start: str, end: str
) -> None:
    invoices.answers[f"{SCHEDULES}/{NAMED}"]["spec"] = {**NIGHTLY, "timeZone": "Europe/Berlin"}
    done = call("backfill", "Nightly_Invoices", "--date", date, "--max-concurrency", "4", "--no-wait")
    assert done.exit_code == 0, done.stderr
    (made,) = invoices.created
    assert made["spec"]["backfill"] == {"startTime": start, "endTime": end, "maxConcurrency": 4}


def test_days_have_names() -> None:
    now = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)  # half past midnight in Berlin
    today = parse_days("today", ZoneInfo("Europe/Berlin"), now)
    assert today == (datetime(2026, 3, 1, 23, tzinfo=UTC), datetime(2026, 3, 2, 22, 59, 59, tzinfo=UTC))
    both = parse_days("yesterday..today", ZoneInfo("Europe/Berlin"), now)
    assert both == (datetime(2026, 2, 28, 23, tzinfo=UTC), today[1])


@pytest.mark.usefixtures("invoices")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "set --start-time and --end-time, or --date"),
        (["--date", "today", "--end-time", "2026-11-01"], "--date replaces --start-time and --end-time"),
        (["--date", "friday"], "`friday` is not a day"),
        (["--date", "2026-11-07..2026-11-01"], "the last day is before the first one"),
        (["--date", "9999-12-31"], "too late"),
    ],
)
def test_a_backfill_of_no_days_is_rejected(options: list[str], message: str) -> None:
    done = call("backfill", "Nightly_Invoices", *options)
    assert done.exit_code != 0
    assert message in done.stderr or message in str(done.exception)


def test_a_backfill_of_very_many_times_asks_for_confirmation(invoices: ApiServer) -> None:
    invoices.answers[f"{SCHEDULES}/{NAMED}"]["spec"] = {**NIGHTLY, "cron": ["* * * * *"]}
    times = ("--start-time", "2026-11-01T00:00:00Z", "--end-time", "2026-11-01T16:40:00Z", "--no-wait")
    done = call("backfill", "Nightly_Invoices", *times)
    assert (done.exit_code, invoices.created) == (2, [])
    assert "starts more than 1000 runs of `nightly-invoices" in done.stderr
    assert "pass --yes" in done.stderr
    assert call("backfill", "Nightly_Invoices", *times, "--yes").exit_code == 0
    assert len(invoices.created) == 1
    fewer = ("--start-time", "2026-11-01T00:00:00Z", "--end-time", "2026-11-01T16:39:59Z", "--no-wait")
    assert call("backfill", "Nightly_Invoices", *fewer).exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--date", "2126-11-01"], "--date: 2126-11-01T00:00:00Z is in the future"),
        (
            ["--start-time", "2126-11-01", "--end-time", "2126-11-02"],
            "--start-time: 2126-11-01T00:00:00Z is in the future",
        ),
        (
            ["--start-time", "2026-11-01", "--end-time", "2026-10-02"],
            "--end-time: 2026-10-02T00:00:00Z is before --start-time",
        ),
        (["--cancel", "--date", "yesterday"], "--cancel ends all backfills of the Schedule"),
        (["--date", "yesterday", "--reason", "x"], "--reason: requires --cancel"),
    ],
)
def test_the_error_of_a_backfill_names_the_option(invoices: ApiServer, options: list[str], message: str) -> None:
    """Two days of new users: it named `backfill.startTime`, a field of the Operation."""
    done = call("backfill", "Nightly_Invoices", *options, "--no-wait")
    assert (done.exit_code, invoices.created) == (2, [])
    assert message in done.stderr


def test_backfills_can_be_cancelled(invoices: ApiServer) -> None:
    done = call("backfill", "Nightly_Invoices", "--cancel", "--reason", "wrong day", "--no-wait")
    assert done.exit_code == 0, done.stderr
    (made,) = invoices.created
    assert made["spec"] == {"target": {"kind": "Schedule", "name": NAMED}, "cancel": {"reason": "wrong day"}}
    OperationSpec.parse(made["spec"])


def test_describe_shows_a_backfill_in_progress() -> None:
    running = {
        "startTime": "2026-11-01T00:00:00Z",
        "endTime": "2026-11-30T23:59:59Z",
        "handledUntil": "2026-11-12T02:30:00Z",
        "buffered": 2,
        "overlapPolicy": "BufferAll",
    }
    held = {"startTime": "2026-11-01T00:00:00Z", "endTime": "2026-11-02T00:00:00Z", "overlapPolicy": "AllowAll"}
    held |= {"maxConcurrency": 4, "held": True}
    found = schedule(NIGHTLY, conditions=[READY], backfills=[running, held])
    lines = shown(found).splitlines()
    assert "  backfill  2026-11-01T00:00:00Z to 2026-11-30T23:59:59Z: 10 of 30 times handled, BufferAll" in lines
    assert (
        "  backfill  2026-11-01T00:00:00Z to 2026-11-02T00:00:00Z: 0 of 1 times handled, AllowAll, at most 4 at the same time, "
        "waits until the Schedule is unpaused"
    ) in lines


def test_unpause_ends_the_pause_of_a_temporal_client(invoices: ApiServer) -> None:
    """Issue 44, C 3: after a pause by an SDK, which sets `spec.paused`, `schedule unpause` refused."""
    paused: Any = invoices.answers[f"{SCHEDULES}/{NAMED}"]
    paused["metadata"] |= {"resourceVersion": "7", "generation": 2}
    paused["metadata"]["annotations"] |= {CLIENT_ANNOTATION: "{}"}
    paused["spec"] = {**NIGHTLY, "paused": True, "notes": "broken"}
    paused["status"]["observedGeneration"] = 2
    done = call("unpause", "Nightly_Invoices", "--reason", "repaired", "--no-wait")
    assert done.exit_code == 0, done.stderr
    assert "`spec.paused` was true and is now false" in done.stderr
    changed: Any = invoices.answers[f"{SCHEDULES}/{NAMED}"]
    assert changed["spec"] == {**NIGHTLY, "paused": False, "notes": "repaired"}
    assert [each["spec"]["unpause"] for each in invoices.created] == [{"reason": "repaired"}]
    assert "spec.paused" not in call("unpause", "Nightly_Invoices", "--no-wait").stderr


def create(*arguments: str) -> Result:
    return perdure("schedule", "create", *arguments, "--dry-run")


def test_create_rejects_a_schedule_that_never_fires() -> None:
    done = create("never", "--workflow", "w", "--cron", "0 0 30 2 *")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "spec.cron: No time matches within the next 40 years" in done.stderr


def test_create_notes_that_a_schedule_without_times_starts_nothing() -> None:
    done = create("never", "--workflow", "w")
    assert done.exit_code == 0
    assert "Runs start only when an Operation triggers them" in done.stderr
    assert "schedule trigger never" in done.stderr


def test_large_integers_of_an_input_keep_their_digits(tmp_path: Path) -> None:
    file = tmp_path / "input.json"
    file.write_text('{"id": 12345678901234567890, "day": 1}')
    done = create("nightly", "--workflow", "w", "--cron", "@daily", "--input", f"@{file}")
    assert done.exit_code == 0, done.stderr
    run = yaml.safe_load(done.stdout)["spec"]["workflowRunTemplate"]["spec"]
    assert run["input"] == {"id": "12345678901234567890", "day": 1}


@pytest.mark.parametrize("option", ["--input", "--calendar", "--exclude-calendar"])
def test_create_rejects_what_is_not_json(option: str) -> None:
    done = create("nightly", "--workflow", "w", "--cron", "@daily", option, "{day")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{option}: is not JSON" in done.stderr


def test_the_quarterly_example_fires_four_times_a_year() -> None:
    reported = perdure("schedule", "create", "-h").stdout
    calendar = reported.partition("quarters")[2].partition("--calendar '")[2].partition("'")[0]
    done = create("quarters", "--workflow", "bill", "--calendar", calendar)
    assert done.exit_code == 0, done.stderr
    assert yaml.safe_load(done.stdout)["spec"]["calendars"] == [
        {"month": "Jan,Apr,Jul,Oct", "dayOfMonth": "1", "hour": "6"}
    ]


PAUSED = condition("Paused", "True", "PausedBySpec", "`spec.paused` is true")


def test_a_paused_schedule_shows_when_it_would_start_runs() -> None:
    found = schedule({**NIGHTLY, "paused": True}, conditions=[READY, PAUSED])
    lines = shown(found).splitlines()
    assert len(lines[lines.index("Next, if it were not paused") :]) == 11
    assert "(in " in table([found], PAGE)[1].plain
    ended = schedule(NIGHTLY, conditions=[READY, condition("Paused", "True", "OutOfActions")])
    assert "Next" not in shown(ended)


def test_start_and_end_times_are_in_the_zone_of_the_schedule() -> None:
    words = [
        "schedule",
        "create",
        "nightly",
        "--workflow",
        "report",
        "--cron",
        "@daily",
        "--time-zone",
        "Asia/Tokyo",
        "--dry-run",
    ]
    limits = ["--start-time", "2090-01-01", "--end-time", "2090-02-01T00:00:00Z"]
    done = perdure(*words, *limits)
    assert done.exit_code == 0, done.output
    spec = yaml.safe_load(done.stdout)["spec"]
    assert (spec["startTime"], spec["endTime"]) == ("2089-12-31T15:00:00Z", "2090-02-01T00:00:00Z")


def test_describe_shows_times_in_the_zone_of_the_schedule() -> None:
    """Two days of new users: they were in UTC only."""
    last = {"scheduledTime": "2026-10-24T00:30:00Z", "actualTime": "2026-10-24T00:30:00Z", "workflowRun": "nightly-1"}
    status = {"nextScheduledTimes": ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"], "recentActions": [last]}
    lines = shown(schedule({**NIGHTLY, "timeZone": "Europe/Berlin"}, conditions=[READY], **status)).splitlines()
    following = lines[lines.index("Next") + 1 :]
    assert following[0].startswith("  2026-10-25T00:30:00Z  Sun 2026-10-25 02:30:00 +0200  ")
    assert following[1].startswith("  2026-10-26T01:30:00Z  Mon 2026-10-26 02:30:00 +0100  ")
    assert lines[lines.index("Last") + 1].startswith("  2026-10-24T00:30:00Z  Sat 2026-10-24 02:30:00 +0200  ")
    assert "+0000" not in shown(schedule(NIGHTLY, conditions=[READY], **status))
