"""The output of `wait` and `list`."""

from perdure.view.runs.describe import sections
from perdure.view.runs.follow import Changes, window
from perdure.view.runs.summaries import table
from support.view.flow import Flow, charged_after_two_refusals, declined, golden, plain


def test_each_change_is_a_line() -> None:
    flow, changes = Flow(), Changes()
    reported: list[str] = []

    def look(offset: float) -> None:
        reported.extend(changes.lines(flow.run(offset), flow.page(offset)))

    look(0)
    flow.started(1)
    look(1)
    look(2)
    flow.completed(10, "R-1")
    look(10.5)
    flow.failed(12)
    look(12)
    flow.failed(16, declined(non_retryable=True))
    look(16)
    assert "\n".join(reported) == golden("""
        +0s ◔ reserve Scheduled: attempt 1 waits for its pod
        +0s ● order-42 Running
        +1s ● reserve Running
        +10s ✓ reserve Succeeded
        +10s ◔ charge Scheduled: attempt 1 waits for its pod
        +12s ↻ charge BackingOff: attempt 2 in 4s; attempt 1 failed: CardDeclined: no funds
        +16s ✗ charge Failed: attempt 2: CardDeclined: no funds; NonRetryableFailure
        +16s ✗ order-42 Failed: after 16s: step `charge`: activity `charge-card` failed after 2 attempts \
(NonRetryableFailure): CardDeclined: no funds
    """)


SWEEP = """
activities:
- {name: fit, startToCloseTimeout: 5m, container: {image: shop}}
steps:
- {name: train, forEach: {items: "${input}", as: it, maxConcurrency: 1}, activity: {name: fit}}
"""


def test_a_failed_item_has_the_same_name_in_every_line() -> None:
    flow = Flow(SWEEP, [{"lr": 0.1}, {"lr": 0.2}]).started(1).completed(2).started(3)
    before = flow.run()
    after = flow.failed(4, declined(non_retryable=True)).run()
    page, changes = flow.page(4), Changes()
    list(changes.lines(before, page))
    failed = "step `train[1: lr=0.2]`: activity `fit` failed after 1 attempt"
    assert [line.partition(" ")[2] for line in changes.lines(after, page)] == [
        "✗ train Failed",
        "✗ train[1: lr=0.2] Failed: CardDeclined: no funds; NonRetryableFailure",
        f"✗ order-42 Failed: after 4s: {failed} (NonRetryableFailure): CardDeclined: no funds",
    ]
    assert failed in plain(sections(after, page))
    assert after.failure is not None
    assert "step `train[1]`" in after.failure["message"], "programs that read it get the path"


LOOP = """
activities:
- {name: fit, startToCloseTimeout: 5m, container: {image: shop}}
steps:
- {name: train, forEach: {items: "${input}", as: it, maxConcurrency: 2}, activity: {name: fit}}
- {name: nap, needs: [], sleep: {duration: 60s}}
"""


def test_the_times_of_the_progress_do_not_go_back_and_items_keep_their_names() -> None:
    """Two days of new users: a step that had ended before another one began was shown after it, with the earlier time."""
    flow, changes = Flow(LOOP, [{"lr": 0.1}, {"lr": 0.2}]), Changes()

    def look(offset: float) -> list[str]:
        return list(changes.lines(flow.run(offset), flow.page(offset)))

    flow.started(1, "train[0]").started(2, "train[1]")
    first = look(3)
    assert [line.split(" ")[0] for line in first] == ["+0s", "+0s", "+0s", "+1s", "+2s"]
    flow.completed(3.5, of="train[1]").completed(4, of="train[0]")
    second = look(5)
    assert [line.split(" ")[0] for line in second] == ["+3.5s", "+4s", "+4s"]
    assert {line.split(" ", 2)[2] for line in second} == {
        "train[0: lr=0.1] Succeeded",
        "train[1: lr=0.2] Succeeded",
        "train Succeeded",
    }


def test_a_long_run_is_shown_around_its_open_steps() -> None:
    steps = "".join(f"- {{name: nap-{i:02}, sleep: {{duration: 1s}}}}\n" for i in range(30))
    flow = Flow(f"steps:\n{steps}")
    for second in range(1, 16):
        flow.at(second)
    lines = window(flow.run(15.5), flow.page(15.5), 12)
    assert plain(lines) == golden("""
        order-42  ● Running  15/30  15.5s
        STEP       STATUS       KIND      TRIES  START  TIME
        … 12 steps before
        ├─ nap-12  ✓ Succeeded  sleep 1s         +12s   1s
        ├─ nap-13  ✓ Succeeded  sleep 1s         +13s   1s
        ├─ nap-14  ✓ Succeeded  sleep 1s         +14s   1s
        ├─ nap-15  ◔ Waiting    sleep 1s         +15s   500ms
        │    fires in 1s
        ├─ nap-16  ○ Pending    sleep 1s
        ├─ nap-17  ○ Pending    sleep 1s
        … 12 steps after
    """)


def test_a_short_run_is_shown_completely() -> None:
    flow = Flow()
    assert len(window(flow.run(), flow.page(), 24)) == 7


def test_runs_are_listed_as_a_machine_readable_table() -> None:
    done = charged_after_two_refusals().at(56)
    new = Flow(name="new")
    new.status = {}
    runs = [done.run(120), new.run(120)]
    assert plain(table(runs, done.page(120))) == golden("""
        NAME      PHASE      PROGRESS  REASON     STARTED  DURATION  AGE
        order-42  Completed  4/4       Completed  2m       56s       2m1s
        new       Pending    -         -          -        -         2m1s
    """)
    wide = plain(table(runs, done.page(120), namespaces=True, wide=True)).splitlines()
    assert wide[0].split() == [
        *("NAMESPACE", "NAME", "PHASE", "PROGRESS", "REASON", "STARTED", "DURATION", "AGE"),
        *("WORKFLOW", "WORKFLOW-ID", "MESSAGE"),
    ]
    assert all(len(line.split()) == 11 for line in wide)
