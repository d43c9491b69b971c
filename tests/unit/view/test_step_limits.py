"""The limits of a step in `perdure describe`."""

from support.view.flow import Flow, golden
from unit.view.shown import steps

LIMITED = """
activities: [{name: book, startToCloseTimeout: 1m, container: {image: i}}]
steps:
- name: pay
  limits: [{name: bank}]
  call: {block: twice}
blocks: [{name: twice, steps: [{name: first, activity: {name: book}}]}]
"""


def test_a_step_shows_that_it_waits_for_its_limits_and_then_what_runs() -> None:
    assert steps(Flow(LIMITED).at(1)) == golden("""
        STEP          STATUS       KIND        TRIES  START  TIME
        └─ pay        ● Running    call twice         +0s    1s
           └─ limits  ◔ Scheduled  limits             +0s    1s
                waits for its WorkflowLimits
    """)


def test_a_step_that_holds_its_limits_shows_what_runs() -> None:
    assert steps(Flow(LIMITED).completed(2).started(3)) == golden("""
        STEP          STATUS       KIND           TRIES  START  TIME
        └─ pay        ● Running    call twice            +0s    3s
           ├─ limits  ✓ Succeeded  limits                +0s    2s
           └─ first   ● Running    activity book  1      +2s    1s
                pod order-42-5-1
    """)
