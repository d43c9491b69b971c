"""`describe` of runs with more steps than fit a screen."""

from perdure.engine.inputs import AttemptCompleted, AttemptFailed, AttemptStarted
from perdure.view.runs.describe import describe
from perdure.view.runs.tree import tree
from support.view.flow import Flow, at, declined, golden, plain

_ITEMS, _STEPS = 100, 12
SWEEP = f"""
activities:
- {{name: work, startToCloseTimeout: 5m, container: {{image: shop}}}}
steps:
- {{name: fetch, activity: {{name: work}}}}
- {{name: train, forEach: {{items: "${{lists.range({_ITEMS})}}", maxConcurrency: {_ITEMS}}}, call: {{block: one}}}}
- {{name: report, activity: {{name: work}}}}
failurePolicy: Continue
blocks:
- name: one
  steps: [{", ".join(f"{{name: s{number}, activity: {{name: work}}}}" for number in range(_STEPS))}]
"""


def advance(flow: Flow, offset: float, *, keep: tuple[str, ...] = (), fail: tuple[str, ...] = ()) -> None:
    """Start all pending activities, and end those that are not kept."""
    pending = [each for each in flow.state.activities.values() if not each.activity_id.startswith(keep or ("-",))]
    known = [{"scheduled_event_id": each.scheduled_event_id, "attempt": each.attempt} for each in pending]
    flow.at(offset, *(AttemptStarted(**each, time=at(offset)) for each in known))
    failure = declined("out of memory", non_retryable=True)
    flow.at(
        offset + 1,
        *(
            AttemptFailed(**each, failure=failure) if one.activity_id in fail else AttemptCompleted(**each, result=None)
            for one, each in zip(pending, known, strict=True)
        ),
    )


def sweep() -> Flow:
    """1,200 activities: one has failed, one still runs, all others have succeeded."""
    flow = Flow(SWEEP)
    for number in range(_STEPS + 1):
        advance(flow, 2 * number, keep=("train[40]/s5",), fail=("train[7]/s3",))
    return flow.started(2 * _STEPS + 2, "train[40]/s5")


def test_a_run_of_1200_activities_fits_a_screen() -> None:
    flow = sweep()
    run, page = flow.run(30), flow.page(30, brief=True)
    assert sum(1 for step in run.every_step() if step.kind == "activity") >= _ITEMS * (_STEPS - 1)
    shown = plain(describe(run, page))
    assert len(shown.splitlines()) <= 55
    assert "train[40]/s5 (work)" in shown
    assert "\nAll steps: perdure describe -n shop order-42 --all\n" in shown
    assert plain(tree(run, page)) == golden("""
        STEP          STATUS       KIND           TRIES  START  TIME
        ├─ fetch      ✓ Succeeded  activity work  1      +0s    1s
        ├─ train      ● Running    call one              +1s    29s
        │  │ 100 items: 98 Succeeded, 1 Failed, 1 Running
        │  ├─ [0]     ✓ Succeeded  call one              +1s    24s
        │  ├─ [1]     ✓ Succeeded  call one              +1s    24s
        │  ├─ … 5 items: 5 Succeeded
        │  ├─ [7]     ✗ Failed     call one              +1s    8s
        │  │  ├─ s0   ✓ Succeeded  activity work  1      +1s    2s
        │  │  ├─ s1   ✓ Succeeded  activity work  1      +3s    2s
        │  │  ├─ s2   ✓ Succeeded  activity work  1      +5s    2s
        │  │  └─ s3   ✗ Failed     activity work  1      +7s    2s
        │  │       CardDeclined: out of memory; NonRetryableFailure
        │  │       pod order-42-728-1
        │  ├─ … 32 items: 32 Succeeded
        │  ├─ [40]    ● Running    call one              +1s    29s
        │  │  ├─ s0   ✓ Succeeded  activity work  1      +1s    2s
        │  │  ├─ s1   ✓ Succeeded  activity work  1      +3s    2s
        │  │  ├─ … 3 steps: 3 Succeeded
        │  │  ├─ s5   ● Running    activity work  1      +11s   19s
        │  │  │    pod order-42-1423-1
        │  │  ├─ … 5 steps: 5 Pending
        │  │  └─ s11  ○ Pending    activity work
        │  ├─ … 58 items: 58 Succeeded
        │  └─ [99]    ✓ Succeeded  call one              +1s    24s
        └─ report     ○ Pending    activity work
    """)


def test_the_whole_run_is_shown_on_request() -> None:
    flow = sweep()
    shown = plain(describe(flow.run(30), flow.page(30)))
    assert len(shown.splitlines()) > 80
    assert "All steps" not in shown


def test_a_short_run_is_shown_completely_on_a_brief_page() -> None:
    flow = Flow()
    assert plain(describe(flow.run(1), flow.page(1, brief=True))) == plain(describe(flow.run(1), flow.page(1)))
