"""Services of a list of steps: when the interpreter starts and stops them, and what their ends mean."""

import pytest
import yaml

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine.activities import too_many_losses
from perdure.engine.failures import Failure, FailureKind, RetryState, TimeoutType
from perdure.engine.state import AWAIT_SERVICE
from perdure.language.step_tree import OpenPaths, step_tree
from support.language.checks import checked
from support.language.resumed import Run, plan, retried
from unit.language.execution.play import Play

GROUP = """
steps:
- {name: tests, call: {block: tests, input: {version: 18}}}
- {name: after, activity: {name: work}}
blocks:
- name: tests
  services:
  - name: db
    image: "postgres:${input.version}"
    readyTimeout: 2m
    readinessProbe: {tcpSocket: {port: 5432}}
  - {name: mail, image: mail}
  steps:
  - {name: migrate, activity: {name: work, input: "${services.db.host}"}}
  - {name: check, activity: {name: work, input: "${services.mail.ip}"}}
"""
MAIN = """
services: [{name: db, image: postgres}]
onFailure: {block: tell}
steps:
- {name: one, activity: {name: work}}
- {name: two, call: {block: inner}}
blocks:
- {name: inner, steps: [{name: read, activity: {name: work, input: "${services.db.host}"}}]}
- {name: tell, steps: [{name: note, activity: {name: work}}]}
"""
STARTED = ["tests:service.db", "tests:ready.db", "tests:service.mail", "tests:ready.mail"]


def ready() -> Play:
    play = Play(GROUP)
    play.completes("tests:ready.db", {"host": "h", "ip": "1", "pod": "p"})
    play.completes("tests:ready.mail", {"host": "m", "ip": "2", "pod": "q"})
    return play


def lost(play: Play, path: str) -> list[cmd.Command]:
    failure = too_many_losses(1, Failure(kind=FailureKind.SERVER, message="pod p was deleted by someone else"))
    return play.happens(
        ev.ActivityTaskFailed,
        scheduled_event_id=7,
        started_event_id=2,
        activity_id=path,
        attempt=1,
        losses=1,
        failure=failure,
        retry_state=RetryState.MAXIMUM_ATTEMPTS_REACHED,
    )


def test_the_steps_start_when_all_services_are_ready_and_read_their_addresses() -> None:
    play = Play(GROUP)
    assert play.scheduled == {path: {"version": 18} if ":service." in path else None for path in STARTED}
    waits = [each for each in play.all(cmd.ScheduleActivityTask) if each.activity_type == AWAIT_SERVICE]
    assert [each.schedule_to_close_timeout.total_seconds() for each in waits if each.schedule_to_close_timeout] == [
        120,
        300,
    ]
    play.completes("tests:ready.db", {"host": "h", "ip": "1", "pod": "p"})
    assert list(play.scheduled) == STARTED
    play.completes("tests:ready.mail", {"host": "m", "ip": "2", "pod": "q"})
    play.completes("tests/migrate")
    assert (play.scheduled["tests/migrate"], play.scheduled["tests/check"]) == ("h", "2")
    assert play.cancelled == []


def test_the_services_are_stopped_when_the_steps_have_ended() -> None:
    play = ready()
    play.completes("tests/migrate")
    play.completes("tests/check")
    assert play.cancelled == ["tests:service.db", "tests:service.mail"]
    assert "after" in play.scheduled
    play.is_cancelled("tests:service.db")  # changes nothing
    play.completes("after")
    assert isinstance(play.last, cmd.CompleteWorkflowExecution)


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
def test_the_services_are_stopped_however_the_steps_end(how: str) -> None:
    play = ready()
    if how == "fails":
        play.fails("tests/migrate")
    else:
        play.cancel()
    assert play.cancelled[-2:] == ["tests:service.db", "tests:service.mail"]


def test_a_cancellation_before_the_services_are_ready_stops_them_and_the_waits() -> None:
    play = Play(GROUP)
    play.completes("tests:ready.db", {"host": "h"})
    play.cancel()
    assert play.cancelled == ["tests:service.db", "tests:ready.mail", "tests:service.mail"]
    assert isinstance(play.last, cmd.CancelWorkflowExecution)


def test_a_service_that_is_not_ready_in_time_fails_the_steps() -> None:
    play = Play(GROUP)
    late = Failure(
        kind=FailureKind.TIMEOUT,
        message="activity ScheduleToStart timeout after 2m: the attempt has not started: pod p runs, and is not ready",
        timeout_type=TimeoutType.SCHEDULE_TO_START,
    )
    play.happens(
        ev.ActivityTaskTimedOut,
        scheduled_event_id=1,
        started_event_id=0,
        activity_id="tests:ready.db",
        attempt=1,
        failure=late,
        retry_state=RetryState.TIMEOUT,
    )
    assert play.failure.type_names() & {"ServiceNotReady"}
    want = "service `db` of the steps of `tests` was not ready within 2m: pod p runs, and is not ready"
    assert play.failure.message == want
    assert "tests/migrate" not in play.scheduled


@pytest.mark.parametrize("how", ["ends", "fails", "is lost"])
def test_a_service_that_ends_before_the_steps_fails_them_whatever_their_policy(how: str) -> None:
    play = Play(GROUP.replace("- name: tests\n", "- name: tests\n  failurePolicy: Continue\n"))
    for name in ("db", "mail"):
        play.completes(f"tests:ready.{name}", {"host": "h", "ip": "1"})
    if how == "ends":
        play.completes("tests:service.db")
    elif how == "fails":
        play.fails("tests:service.db", "OOMKilled", "container db was killed")
    else:
        lost(play, "tests:service.db")
    assert play.cancelled[:1] == ["tests/migrate"]
    play.is_cancelled("tests/migrate")
    assert play.failure.type_names() & {"ServiceEnded"}
    words = {"ends": "exit code 0", "fails": "container db was killed", "is lost": "pod p was deleted by someone else"}
    assert play.failure.message.endswith(words[how])
    assert play.failure.message.startswith("service `db` ended before the steps of `tests` had ended: ")


def test_a_pod_that_is_lost_before_its_service_is_ready_is_replaced_a_few_times() -> None:
    play = Play(GROUP)
    for _ in range(5):
        (again,) = lost(play, "tests:service.db")
        assert isinstance(again, cmd.ScheduleActivityTask)
        assert again.activity_id == "tests:service.db"
    lost(play, "tests:service.db")
    assert play.failure.type_names() & {"ServiceEnded"}


def test_services_of_the_run_stop_before_its_handlers_and_serve_its_blocks() -> None:
    play = Play(MAIN)
    assert list(play.scheduled) == [":service.db", ":ready.db"]
    play.completes(":ready.db", {"host": "h"})
    play.completes("one")
    assert play.scheduled["two/read"] == "h"
    play.fails("two/read")
    assert play.cancelled == [":service.db"]
    assert ":onFailure/note" in play.scheduled
    play.is_cancelled(":service.db")
    play.completes(":onFailure/note")
    assert isinstance(play.last, cmd.FailWorkflowExecution)


def test_a_block_whose_services_are_too_many_for_the_run_fails() -> None:
    play = Play(
        """
steps:
- name: each
  forEach: {items: "${input}"}
  call: {block: served}
blocks:
- name: served
  services: [{name: a, image: i}, {name: b, image: i}, {name: c, image: i}, {name: d, image: i}, {name: e, image: i}]
  steps: [{name: s, activity: {name: work}}]
""",
        [*range(250)],
    )
    assert len(play.scheduled) <= 2_000
    assert play.failure.type_names() & {"PendingLimitExceeded"}


def test_expressions_can_read_only_known_services() -> None:
    found = checked(
        """
services: [{name: db, image: i, readinessProbe: {tcpSocket: {port: 1}}}]
steps: [{name: a, activity: {name: work, input: "${services.cache.host}"}}]
"""
    )
    assert [str(each) for each in found.errors] == [
        "spec.steps[0].activity.input: service `cache` is not in `services` of this list of steps or of the run: db"
    ]


@pytest.mark.parametrize(
    ("fields", "finding"),
    [
        ("command: [x]", "spec.services[0].readinessProbe: is not set, so the steps start as soon as"),
        ("restartPolicy: Always", "spec.services[0].restartPolicy: must not be used: steps whose service ends fail"),
        ("comand: [x]", "spec.services[0].comand: Kubernetes"),
        ('args: ["${params.x}"]', "spec.services[0].args[0]: "),
    ],
)
def test_mistakes_in_a_service_are_found(fields: str, finding: str) -> None:
    found = checked(f"services: [{{name: db, image: i, {fields}}}]")
    assert any(str(each).startswith(finding) for each in found.findings), list(map(str, found.findings))


SERVICES = {"services": [{"name": "db", "image": "i"}]}
WORK = "[{name: a, activity: {name: work}}, {name: b, activity: {name: work}}]"


def begun(**more: object) -> Run:
    run = Run(WORK, **SERVICES, **more)
    return run.done(":ready.db", "a")


def test_a_retry_repeats_all_steps_that_used_a_service() -> None:
    run = begun().failed("b").done(":finally/note")
    found = plan(run)
    assert (found.point, found.kept) == (1, ())
    again = retried(run)
    assert again.open() == [":service.db", ":ready.db"]


def test_a_retry_after_the_services_have_stopped_keeps_what_used_them() -> None:
    block = {"name": "used", **SERVICES, "steps": [{"name": "in", "activity": {"name": "work"}}]}
    run = Run(
        "[{name: used, call: {block: used}}, {name: b, activity: {name: work}}]",
        blocks=[block, {"name": "tidy", "steps": [{"name": "note", "activity": {"name": "work"}}]}],
    )
    run.done("used:ready.db", "used/in").failed("b").done(":finally/note")
    again = retried(run)
    assert [path for path in again.open() if ":" not in path] == ["b"]


def test_the_tree_of_the_steps_shows_running_services() -> None:
    work = OpenPaths(activities={"tests:service.db": "Running", "tests:ready.db": "Scheduled"}, timers=())
    memory = {"frames": {"": {"steps": {"tests": {"status": "Running"}}}, "tests": {"block": "tests", "services": {}}}}
    (tests, _) = step_tree(yaml.safe_load(GROUP), {**memory, "tasks": {"tests": {}}}, work=work, closed=False)
    assert [(each.name, each.kind, each.state) for each in tests.steps if each.kind == "service"] == [
        ("service db", "service", "Running")
    ]
