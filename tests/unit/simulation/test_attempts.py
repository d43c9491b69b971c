"""Simulated attempts: retries, timeouts, heartbeats, losses; times are seconds of virtual time."""

import pytest

from perdure.simulation.transcript import EndlessError
from unit.simulation.stage import play, policy

ONE = """
activities:
- {name: work, startToCloseTimeout: 1m, container: {image: i}%s}
steps:
- {name: work, activity: {name: work, input: "${input}"}}
"""


def one(options: str = "") -> str:
    return ONE % (f", {options}" if options else "")


def test_an_activity_without_entries_completes_immediately_with_null() -> None:
    played = play(one())
    assert (played.phase, played.json["output"], played.elapsed) == ("Completed", None, 0)
    assert played.attempts("work") == [(0, 0, "Completed")]


def test_an_attempt_takes_the_given_time() -> None:
    played = play(one(), "activities: {work: [{after: 2.5, output: {ok: true}}]}")
    assert (played.json["output"], played.json["elapsed"]) == ({"ok": True}, 2.5)


def test_retries_wait_as_defined_by_the_policy() -> None:
    exponential = "retryPolicy: {exponential: {initialInterval: 2s, backoffCoefficient: '3', maximumInterval: 10s}}"
    played = play(one(exponential), "activities: {work: [{fail: {}}, {fail: {}}, {fail: {}}, {fail: {}}, {}]}")
    assert [start for start, _, _ in played.attempts("work")] == [0, 2, 8, 18, 28]


def test_a_policy_by_name_is_found_in_the_files() -> None:
    standard = policy("standard", "exponential: {maximumAttempts: 2, initialInterval: 7s}")
    played = play(one("retryPolicy: {name: standard}"), "activities: {work: [{fail: {type: Declined}}]}", standard)
    assert played.attempts("work") == [(0, 0, "Failed"), (7, 7, "Failed")]
    assert played.json["failure"]["retryState"] == "MaximumAttemptsReached"


def test_a_failure_can_set_the_retry_delay_or_be_non_retryable() -> None:
    entries = "[{fail: {type: Busy, nextRetryDelay: 1h}}, {fail: {type: Bad, nonRetryable: true, details: {a: 1}}}]"
    played = play(one(), f"activities: {{work: {entries}}}")
    assert played.attempts("work") == [(0, 0, "Failed"), (3600, 3600, "Failed")]
    cause = played.json["failure"]["cause"]
    assert (cause["type"], cause["details"], cause["nonRetryable"]) == ("Bad", {"a": 1}, True)


@pytest.mark.parametrize(
    ("entry", "want"),
    [
        ("{exitCode: 3}", "ExitCode3"),
        ("{exitCode: 137}", "SIGKILL"),
        ("{exitCode: 64}", "InvalidInput"),
        ("{fail: {message: hm}}", "ExitCode1"),
        ("{fail: {type: Mine}, exitCode: 64}", "Mine"),
        ("{fail: {message: hm}, exitCode: 64}", "InvalidInput"),
    ],
)
def test_an_exit_code_maps_to_a_failure_type_as_for_a_pod(entry: str, want: str) -> None:
    options = "failureTypes: [{exitCodes: [64], type: InvalidInput}], retryPolicy: {exponential: {maximumAttempts: 1}}"
    played = play(one(options), f"activities: {{work: [{entry}]}}")
    assert played.json["failure"]["cause"]["type"] == want


def test_a_lost_attempt_is_not_counted() -> None:
    once = "retryPolicy: {exponential: {maximumAttempts: 1}}"
    played = play(one(once), "activities: {work: [{lost: true, after: 5s}, {lost: true}, {output: 1}]}")
    assert played.attempts("work") == [(0, 5, "Lost"), (6, 6, "Lost"), (8, 8, "Completed")]
    assert played.phase == "Completed"


@pytest.mark.parametrize(
    ("ends", "outcomes"),
    [
        pytest.param("exitCode: 0", ["Lost", "Completed"], id="it handles SIGTERM, and has no result"),
        pytest.param("output: all", ["Completed"], id="it writes its result when it is stopped"),
        pytest.param("exitCode: 3", ["Lost", "Completed"], id="it fails when it is stopped"),
        pytest.param("startsAfter: 2s", ["Lost", "Completed"], id="it does not handle SIGTERM"),
    ],
)
def test_a_disrupted_attempt_completes_only_with_a_result(ends: str, outcomes: list[str]) -> None:
    """argo-workflows#12231."""
    script = f"activities: {{work: [{{disrupted: true, after: 5s, {ends}}}, {{output: all}}]}}"
    played = play(one("retryPolicy: {exponential: {maximumAttempts: 1}}"), script)
    assert [outcome for _, _, outcome in played.attempts("work")] == outcomes
    assert (played.phase, played.json["output"]) == ("Completed", "all")


def test_losses_can_be_bounded() -> None:
    """airflow#53015."""
    bounded = "retryPolicy: {exponential: {maximumAttempts: 1}, maximumLosses: 2}"
    played = play(one(bounded), "activities: {work: [{lost: true, after: 5s}]}")
    assert [outcome for _, _, outcome in played.attempts("work")] == ["Lost"] * 3
    assert played.json["failure"]["cause"]["type"] == "TooManyLosses"


def test_the_advice_for_endless_losses_names_their_limit() -> None:
    """`maximumAttempts` is set, and does not count lost attempts (airflow#53015)."""
    once = "retryPolicy: {exponential: {maximumAttempts: 2}}"
    with pytest.raises(EndlessError, match=r"of them lost, so let one succeed or set `maximumLosses` in its retry"):
        play(one(once), "{maxEvents: 500, activities: {work: [{lost: true, after: 10s}]}}")


def test_an_attempt_that_hangs_times_out() -> None:
    played = play(one(), "activities: {work: [{hang: true}, {output: 1}]}")
    assert played.attempts("work") == [(0, 60, "TimedOut"), (61, 61, "Completed")]


def test_a_result_at_the_deadline_counts() -> None:
    assert play(one(), "activities: {work: [{after: 60s}]}").attempts("work") == [(0, 60, "Completed")]
    assert play(one(), "activities: {work: [{after: 60001ms}, {}]}").attempts("work")[0] == (0, 60, "TimedOut")


def test_schedule_to_close_ends_all_attempts() -> None:
    played = play(one("scheduleToCloseTimeout: 10s"), "activities: {work: [{fail: {}, after: 1s}]}")
    assert [start for start, _, _ in played.attempts("work")] == [0, 2, 5]
    assert played.elapsed == 6, "the retry would come too late, so it is not waited for"
    assert played.json["failure"]["retryState"] == "Timeout"


def test_an_attempt_that_does_not_start_times_out_by_schedule_to_start() -> None:
    played = play(one("scheduleToStartTimeout: 30s"), "activities: {work: [{startsAfter: 1h}]}")
    assert played.attempts("work") == [(None, 30, "TimedOut")]
    assert played.json["failure"]["cause"]["timeoutType"] == "ScheduleToStart"


HEARTBEATS = "heartbeatTimeout: 10s, retryPolicy: {exponential: {maximumAttempts: 1}}"


@pytest.mark.parametrize(
    ("entry", "end", "outcome"),
    [
        ("{hang: true}", 10, "TimedOut"),
        ("{hang: true, heartbeats: {every: 4s, count: 3}}", 22, "TimedOut"),
        ("{hang: true, heartbeats: {every: 4s}}", 60, "TimedOut"),
        ("{hang: true, heartbeats: {every: 10s, count: 1}}", 20, "TimedOut"),
        ("{after: 30s, heartbeats: {every: 11s}}", 10, "TimedOut"),
        ("{after: 30s, heartbeats: {every: 5s, count: 0}}", 10, "TimedOut"),
        ("{after: 30s, heartbeats: {every: 5s, count: 4}}", 30, "Completed"),
        ("{after: 30s}", 30, "Completed"),
    ],
)
def test_an_attempt_without_heartbeats_times_out(entry: str, end: float, outcome: str) -> None:
    played = play(one(HEARTBEATS), f"activities: {{work: [{entry}]}}")
    assert played.attempts("work") == [(0, end, outcome)]


def test_the_failure_contains_the_last_heartbeat_details() -> None:
    entry = "{hang: true, heartbeats: {every: 4s, count: 1, details: {page: 3}}}"
    failure = play(one(HEARTBEATS), f"activities: {{work: [{entry}]}}").json["failure"]["cause"]
    assert (failure["timeoutType"], failure["lastHeartbeatDetails"]) == ("Heartbeat", {"page": 3})


def test_heartbeats_over_months_take_no_real_time() -> None:
    spec = one("heartbeatTimeout: 10s").replace("startToCloseTimeout: 1m", "startToCloseTimeout: 300d")
    played = play(spec, "activities: {work: [{after: 200d, heartbeats: {every: 1s}}]}")
    assert played.attempts("work") == [(0, 200 * 86400, "Completed")]


EACH = """
activities:
- {name: clean, startToCloseTimeout: 1m, container: {image: i}}
steps:
- {name: rooms, forEach: {items: "${input}", as: room}, activity: {name: clean, input: "${room}"}}
"""


def test_entries_are_counted_for_each_input() -> None:
    played = play(EACH, "{input: [a, b], activities: {clean: [{fail: {}}, {output: ok}]}}")
    assert [outcome for _, _, outcome in played.attempts("clean")] == ["Failed", "Failed", "Completed", "Completed"]
    assert played.json["output"] == ["ok", "ok"]
    assert played.steps() == {"rooms": "Succeeded", "rooms[0]": "Succeeded", "rooms[1]": "Succeeded"}


def test_entries_can_be_selected_by_input() -> None:
    clean = "[{whenInput: {id: 2}, output: two}, {whenInput: {id: 3, big: true}, output: three}, {output: other}]"
    scenario = (
        f"{{input: [{{id: 1}}, {{id: 2, x: 0}}, {{id: 3}}, {{id: 3, big: true}}], activities: {{clean: {clean}}}}}"
    )
    assert play(EACH, scenario).json["output"] == ["other", "two", "other", "three"]


def test_expressions_in_a_container_are_evaluated_or_fail_the_activity() -> None:
    manifest = one("retryPolicy: {exponential: {}}").replace(
        "image: i", 'image: i, args: ["${input.amount}", "${attempt}"]'
    )
    assert play(manifest, "input: {amount: 3}").phase == "Completed"
    played = play(manifest, "input: {amout: 3}")
    assert played.attempts("work") == [(0, 0, "Failed")]
    cause = played.json["failure"]["cause"]
    assert cause["type"] == "ExpressionError"
    assert cause["message"].startswith("activity `work`: container.args[0]: ${input.amount}: ")


def test_claims_named_by_workspaces_are_assumed_to_exist() -> None:
    flow = """
workspaces: [{name: data, persistentVolumeClaim: {claimName: theirs}}]
activities:
- {name: work, startToCloseTimeout: 1m, container: {image: i}, workspaces: [{name: data, mountPath: /data}]}
steps: [{name: do, activity: {name: work}}]
"""
    assert play(flow, "{}").phase == "Completed"
