"""The tree of steps of runs that branch, loop, wait, fail and are compensated; times are seconds since the start."""

import pytest

from perdure.engine import inputs as inp
from perdure.view.runs.describe import describe
from perdure.view.runs.follow import window
from perdure.view.runs.open_work import LiveChild, LiveState
from perdure.view.runs.tree import attempt_count, tree
from support.view.flow import Flow, at, declined, golden, plain
from unit.view.shown import steps

TRIP = """
activities:
- name: book
  startToCloseTimeout: 5m
  retryPolicy: {exponential: {initialInterval: 1s, maximumAttempts: 1}}
  container: {image: shop}
- name: cancel
  startToCloseTimeout: 5m
  container: {image: shop}
steps:
- {name: hotel, activity: {name: book, input: hotel}, compensate: {activity: {name: cancel, input: hotel}}}
- {name: flight, activity: {name: book, input: flight}, compensate: {call: {block: undo, input: flight}}}
- {name: extra, when: "${input.extra}", set: {extra: true}}
- {name: car, activity: {name: book, input: car}}
- {name: done, return: {output: "${steps.hotel.output}"}}
blocks:
- {name: undo, steps: [{name: it, activity: {name: cancel, input: "${params}"}}]}
- {name: report, steps: [{name: pause, sleep: {duration: 1s}}]}
onFailure: {block: report}
"""

OPEN = """
activities:
- {name: clean, startToCloseTimeout: 5m, container: {image: shop}}
steps:
- {name: rooms, forEach: {items: "${input.rooms}", as: room}, call: {block: room, input: "${room}"}}
- name: race
  needs: []
  timeout: 1h
  parallel: {wait: Any, branches: [{name: slow, block: nap, input: 2h}, {name: quick, block: nap, input: 10s}]}
- {name: approve, needs: [], waitForSignal: {name: approved, timeout: 1d}}
- {name: votes, needs: [], waitUntil: {condition: "${vars.?votes.orValue(0) > 2}"}}
- {name: child, needs: [], childWorkflow: {workflow: {name: invoice}, workflowId: invoice-7}}
- {name: last, needs: [rooms, race, approve, votes, child], set: {done: true}}
blocks:
- {name: room, steps: [{name: do, activity: {name: clean, input: "${params}"}}]}
- {name: nap, steps: [{name: nap, sleep: {duration: "${params}"}}]}
"""


def trip() -> Flow:
    """Hotel and flight are booked, and no car is available: the bookings are compensated."""
    flow = Flow(TRIP, input={"extra": False}).started(1).completed(2, "H-1").started(3).completed(4, "F-1")
    return flow.started(5).failed(6, declined("all cars are taken", non_retryable=True))


def test_completed_steps_are_compensated_newest_first() -> None:
    flow = trip().started(7).completed(8)
    assert steps(flow) == golden("""
        STEP              STATUS         KIND             TRIES  START  TIME
        ├─ hotel          ✓ Succeeded    activity book    1      +0s    2s
        │  │ pod order-42-2-1
        │  └─ compensate  ◔ Scheduled    activity cancel  1      +8s    0s
        │       attempt 1 waits for its pod
        │       pod order-42-14-1
        ├─ flight         ↩ Compensated  activity book    1      +2s    2s
        │  │ pod order-42-5-1
        │  └─ compensate  ✓ Succeeded    call undo               +6s    2s
        │     └─ it       ✓ Succeeded    activity cancel  1      +6s    2s
        │          pod order-42-11-1
        ├─ extra          » Skipped      set extra               +4s    0s
        │    its `when` was false
        ├─ car            ✗ Failed       activity book    1      +4s    2s
        │    CardDeclined: all cars are taken; NonRetryableFailure
        │    pod order-42-8-1
        └─ done           ○ NotReached   return
    """)


def test_a_failed_compensation_keeps_the_status_of_its_step() -> None:
    flow = trip().started(7).failed(8, declined("too late", non_retryable=True)).started(9).completed(10)
    shown = steps(flow)
    assert "├─ flight         ✓ Succeeded" in shown
    assert "│  └─ compensate  ✗ Failed       call undo " in shown
    assert "├─ hotel          ↩ Compensated" in shown
    assert "└─ onFailure      ● Running      handler report" in shown
    assert "   └─ pause       ◔ Waiting      sleep 1s" in shown
    flow.at(11)
    assert "└─ onFailure      ✓ Succeeded    handler report          +10s   1s\n" in steps(flow)
    failure = plain(describe(flow.run(), flow.page(width=200))).split("\nFailure\n")[1].split("\n\n")[0]
    assert failure.count("all cars are taken") == 1
    assert failure.count("too late") == 1
    assert "then failed as well: Activity: step `flight:compensate/it`: activity `cancel`" in failure


def test_every_open_step_shows_what_it_waits_for() -> None:
    flow = Flow(OPEN, input={"rooms": [101, 102]}).started(1, "rooms[0]/do").completed(2, of="rooms[0]/do")
    flow.at(3, inp.SignalRequested(request_id="1", signal_name="other", input={"a": 1}, identity="ada"))
    child = next(c for c in flow.state.children.values())
    flow.at(4, inp.ChildStarted(initiated_event_id=child.initiated_event_id, run_id="c-1"))
    summary = LiveChild(name="order-42-9-2-habcde", phase="Running", progress="1/3")
    live = LiveState(children={child.initiated_event_id: summary})
    assert steps(flow, live) == golden("""
        STEP           STATUS       KIND                    TRIES  START  TIME
        ├─ rooms       ● Running    call room                      +0s    4s
        │  │ 2 items: 1 Succeeded, 1 Running
        │  ├─ [0] 101  ✓ Succeeded  call room                      +0s    2s
        │  │  └─ do    ✓ Succeeded  activity clean          1      +0s    2s
        │  │       pod order-42-5-1
        │  └─ [1] 102  ● Running    call room                      +0s    4s
        │     └─ do    ◔ Scheduled  activity clean          1      +0s    4s
        │          attempt 1 waits for its pod
        │          pod order-42-6-1
        ├─ race        ● Running    parallel Any                   +0s    4s
        │  │ times out in 59m56s
        │  ├─ slow     ● Running    call nap                       +0s    4s
        │  │  └─ nap   ◔ Waiting    sleep 2h                       +0s    4s
        │  │       fires in 1h59m
        │  └─ quick    ● Running    call nap                       +0s    4s
        │     └─ nap   ◔ Waiting    sleep 10s                      +0s    4s
        │          fires in 6s
        ├─ approve     ◔ Waiting    waitForSignal approved         +0s    4s
        │    times out in 23h59m
        ├─ votes       ◔ Waiting    waitUntil                      +0s    4s
        ├─ child       ● Running    childWorkflow invoice          +0s    4s
        │    run order-42-9-2-habcde; Running 1/3
        └─ last        ○ Pending    set done
    """)
    shown = plain(describe(flow.run(live=live), flow.page(width=90)))
    assert (
        golden("""
        Pending timers
          race  times out 2026-01-01T13:00:00Z (in 59m56s)
          approve  times out 2026-01-02T12:00:00Z (in 23h59m)
          race.slow/nap  fires 2026-01-01T14:00:00Z (in 1h59m)
          race.quick/nap  fires 2026-01-01T12:00:10Z (in 6s)

        Pending children
          child  order-42-9-2-habcde  ● Running 1/3
            workflow ID invoice-7; if this run closes first: Terminate

        Pending signals
          other  received 2026-01-01T12:00:03Z (1s ago) from ada; input {"a":1}
    """)
        in shown
    )


def test_the_first_last_and_notable_items_of_a_loop_are_shown() -> None:
    definition = """
    activities: [{name: clean, startToCloseTimeout: 5m, container: {image: shop}}]
    steps: [{name: rooms, forEach: {items: "${lists.range(30)}", maxConcurrency: 20}, activity: {name: clean}}]
    """
    flow = Flow(definition)
    for i in [n for n in range(15) if n != 7]:
        flow.started(i + 1, f"rooms[{i}]").completed(i + 1, of=f"rooms[{i}]")
    assert plain(tree(flow.run(), flow.page(), pods=False)) == golden("""
        STEP        STATUS       KIND            TRIES  START  TIME
        └─ rooms    ● Running    activity clean         +0s    15s
           │ 30 items: 14 Succeeded, 16 Scheduled
           ├─ [0]   ✓ Succeeded  activity clean  1      +0s    1s
           ├─ [1]   ✓ Succeeded  activity clean  1      +0s    2s
           ├─ … 5 items: 5 Succeeded
           ├─ [7]   ◔ Scheduled  activity clean  1      +0s    15s
           │    attempt 1 waits for its pod
           ├─ … 7 items: 7 Succeeded
           ├─ [15]  ◔ Scheduled  activity clean  1      +0s    15s
           │    attempt 1 waits for its pod
           ├─ [16]  ◔ Scheduled  activity clean  1      +0s    15s
           │    attempt 1 waits for its pod
           ├─ … 12 items: 12 Scheduled
           └─ [29]  ◔ Scheduled  activity clean  1      +11s   4s
                attempt 1 waits for its pod
    """)
    assert len(window(flow.run(), flow.page(), 12)) <= 12


def test_a_caught_failure_is_shown_next_to_success() -> None:
    definition = """
    activities:
    - {name: book, startToCloseTimeout: 5m, container: {image: shop}}
    steps:
    - {name: hotel, activity: {name: book}, catch: [{call: {block: mend}}]}
    - {name: nap, sleep: {duration: 1h}}
    blocks: [{name: mend, steps: [{name: wait, sleep: {duration: 5s}}]}]
    """
    flow = Flow(definition).started(1).failed(2, declined(non_retryable=True))
    assert "├─ hotel       ● Running  activity book  1      +0s    2s\n" in steps(flow)
    assert "│  └─ catch    ● Running  call mend             +2s    0s\n" in steps(flow)
    flow.at(7)
    assert "✓ Succeeded" in steps(flow).splitlines()[1]
    assert "caught: CardDeclined: no funds" in steps(flow)


def test_a_paused_run_shows_the_reason_and_how_to_continue() -> None:
    flow = Flow().at(5, inp.PauseRequested(request_id="1", reason="stock-taking", identity="ada"))
    shown = plain(describe(flow.run(), flow.page(65)))
    assert "Status:       = Paused\nPaused:       2026-01-01T12:00:05Z (1m ago) by ada: stock-taking\n" in shown
    assert "attempt 1: the run is paused" in shown
    assert shown.count("perdure unpause -n shop order-42") == 1


def test_a_run_with_a_cancellation_request_shows_the_requester() -> None:
    flow = Flow().started(1).at(5, inp.CancelRequested(request_id="1", reason="changed my mind", identity="ada"))
    shown = plain(describe(flow.run(), flow.page(6)))
    assert "Cancellation: 2026-01-01T12:00:05Z (1s ago) by ada: changed my mind" in shown


def test_open_steps_of_a_closed_run_are_stopped() -> None:
    flow = Flow(OPEN, input={"rooms": [101]}).at(5, inp.TerminateRequested(request_id="1", reason="enough"))
    states = {step.path: step.state for step in flow.run().every_step()}
    assert states == {
        "rooms": "Stopped",
        "rooms[0]": "Stopped",
        "rooms[0]/do": "Stopped",
        "race": "Stopped",
        "race.slow": "Stopped",
        "race.slow/nap": "Stopped",
        "race.quick": "Stopped",
        "race.quick/nap": "Stopped",
        "approve": "Stopped",
        "votes": "Stopped",
        "child": "Stopped",
        "last": "NotReached",
    }
    assert all(step.end == at(5) for step in flow.run().every_step() if step.state == "Stopped")


@pytest.mark.parametrize(
    ("attempt", "maximum", "losses", "shown"),
    [(1, 0, 0, "1"), (1, 1, 0, "1"), (2, 5, 0, "2/5"), (3, 1, 2, "1/1 +2 lost"), (3, 0, 1, "2 +1 lost")],
)
def test_lost_attempts_do_not_count(attempt: int, maximum: int, losses: int, shown: str) -> None:
    assert attempt_count(attempt, maximum, losses) == shown


def test_a_long_failure_is_shown_once_with_its_lines() -> None:
    said = "cannot reach the bank\nhost: bank.example\n" + "reason: " + "far " * 30
    flow = Flow().started(1).failed(2, declined(said, non_retryable=True))
    shown = plain(describe(flow.run(), flow.page(width=80)))
    assert shown.count("host: bank.example") == 2  # truncated next to the step, and complete
    assert "\n      host: bank.example\n" in shown.split("\nFailure\n")[1]
    assert max(map(len, shown.splitlines())) <= 100


ACTIVITIES = """
activities:
- {name: slow, startToCloseTimeout: 5m, container: {image: shop}}
- {name: fail, startToCloseTimeout: 5m, retryPolicy: {exponential: {maximumAttempts: 1}}, container: {image: shop}}
"""


def states(flow: Flow) -> dict[str, str]:
    return {step.path: step.state for step in flow.run().every_step()}


@pytest.mark.parametrize("handled", [True, False])
@pytest.mark.parametrize("answers", ["at once", "never", "with success"])
def test_a_step_of_a_compensation_that_timed_out_is_not_cancelled(answers: str, *, handled: bool) -> None:
    flow = Flow(
        ACTIVITIES
        + f"""
steps:
- {{name: a, set: {{x: 1}}, compensate: {{call: {{block: undo}}}}}}
- {{name: boom, activity: {{name: fail}}}}
blocks:
- name: undo
  steps:
  - {{name: late, timeout: 10s, activity: {{name: slow}}{", catch: [{call: {block: ok}}]" if handled else ""}}}
  - {{name: pause, sleep: {{duration: 1h}}}}
- {{name: ok, steps: [{{name: note, set: {{y: 1}}}}]}}
"""
    )
    flow.started(1, "boom").failed(2, declined(non_retryable=True), "boom").started(3).at(20)
    if flow.state.activities:
        if answers == "at once":
            flow.failed(21, declined("stopped"))
        elif answers == "with success":
            flow.completed(21)
        flow.at(4_000)
    reported = states(flow)
    assert reported["a:compensate/late"] == ("Succeeded" if handled else "Failed")
    if handled:
        assert (reported["a:compensate"], reported["a"]) == ("Succeeded", "Compensated")
        assert "caught: step `a:compensate/late` has taken longer than its timeout of 10s" in " ".join(
            steps(flow).split()
        )


def test_a_compensated_step_without_events_has_succeeded() -> None:
    flow = Flow(
        ACTIVITIES
        + """
steps:
- {name: rooms, forEach: {items: [1, 2]}, call: {block: room}}
- {name: boom, activity: {name: fail}}
blocks:
- {name: room, steps: [{name: do, set: {x: 1}, compensate: {activity: {name: slow}}}]}
"""
    )
    flow.started(1, "boom").failed(2, declined(non_retryable=True), "boom")
    flow.started(3, "rooms[1]/do:compensate").completed(4, None, "rooms[1]/do:compensate")
    assert states(flow)["rooms[1]/do"] == "Compensated"
    assert states(flow)["rooms[0]/do"] == "Succeeded"
    flow.started(5, "rooms[0]/do:compensate").completed(6, None, "rooms[0]/do:compensate")
    assert states(flow)["rooms[0]/do"] == "Compensated"


def test_items_without_events_have_succeeded_with_their_loop() -> None:
    definition = """
steps:
- {name: rooms, forEach: {items: [1, 2, 3]}, call: {block: room}}
- {name: done, set: {all: "${steps.rooms.output}"}}
blocks:
- {name: room, steps: [{name: do, set: {x: 1}}], output: 5}
"""
    shown = steps(Flow(definition))
    assert "3 items: 3 Succeeded" in shown
    assert "to come" not in shown
