"""The hooks of a step, and messages of approvals, in `perdure describe`."""

from support.view.flow import Flow, golden
from unit.view.shown import steps

HOOKED = """
activities: [{name: book, startToCloseTimeout: 1m, container: {image: i}}]
steps:
- name: hotel
  onStart: {block: notify}
  activity: {name: book}
  onEnd: {block: notify}
blocks: [{name: notify, steps: [{name: mail, activity: {name: book}}]}]
"""
APPROVAL = """
steps:
- {name: ask, waitForSignal: {name: go, approval: true, message: "Release ${input}?"}}
- {name: later, waitForSignal: {name: go, approval: true, message: "And now?", timeout: 1h}, needs: []}
"""


def test_hooks_are_shown_inside_their_step() -> None:
    flow = Flow(HOOKED).started(1).completed(2).started(3).completed(4).started(5)
    assert steps(flow) == golden("""
        STEP           STATUS       KIND           TRIES  START  TIME
        └─ hotel       ● Running    activity book  1      +0s    5s
           │ pod order-42-5-1
           ├─ onStart  ✓ Succeeded  call notify           +0s    2s
           │  └─ mail  ✓ Succeeded  activity book  1      +0s    2s
           │       pod order-42-2-1
           └─ onEnd    ● Running    call notify           +4s    1s
              └─ mail  ● Running    activity book  1      +4s    1s
                   pod order-42-8-1
    """)


def test_a_message_is_shown_while_the_step_waits() -> None:
    shown = steps(Flow(APPROVAL, input="v7").at(1))
    assert "Release v7?" in shown
    assert "And now?; times out in 59m59s" in shown
