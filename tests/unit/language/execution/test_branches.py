"""Blocks, switches, and branches that run in parallel."""

from perdure.engine.failures import FailureKind
from unit.language.execution.play import ECHO, Play, do


def test_a_block_has_parameters_steps_and_an_output_of_its_own() -> None:
    play = Play(f"steps: [{{name: c, call: {{block: echo, input: '${{input.x}}'}}}}]\n{ECHO}", {"x": 7})
    assert play.scheduled == {"c/inner": 7}
    play.completes("c/inner", 8)
    assert play.result == 8


def test_the_parameters_of_a_block_are_checked() -> None:
    play = Play("""
steps: [{name: c, call: {block: b, input: {n: one}}}]
blocks: [{name: b, params: {schema: {properties: {n: {type: integer}}}}, steps: [{name: s, set: {x: 1}}]}]
""")
    assert play.failure.type == "InvalidInput"
    assert "params.n" in play.failure.message


def test_blocks_can_call_themselves_up_to_a_depth() -> None:
    text = """
steps: [{name: c, call: {block: down, input: {n: 1, to: %d}}}]
blocks:
- name: down
  steps:
  - name: more
    switch:
      cases: [{when: "${params.n < params.to}", call: {block: down, input: {n: "${params.n + 1}", to: "${params.to}"}}}]
      default: {call: {block: bottom, input: "${params.n}"}}
- {name: bottom, steps: [{name: r, return: {output: "${params}"}}]}
"""
    assert Play(text % 20).result == 20
    play = Play(text % 1000)
    assert [f.type for f in play.failure.chain()] == ["BlockDepthExceeded"]


def test_a_switch_without_a_matching_case_does_nothing() -> None:
    assert (
        Play(f"steps: [{{name: s, switch: {{cases: [{{when: '${{false}}', call: {{block: echo}}}}]}}}}]\n{ECHO}").result
        is None
    )


def test_return_in_a_block_ends_only_the_block() -> None:
    play = Play(f"""
steps: [{{name: c, call: {{block: b}}}}, {do("after", "${steps.c.output}")}]
blocks: [{{name: b, steps: [{{name: r, return: {{output: 3}}}}, {do("never")}]}}]
""")
    assert play.scheduled == {"after": 3}


# Parallel

RACE = """
steps:
- name: race
  parallel:
    wait: %s
    branches: [{name: x, block: echo, input: 1}, {name: y, block: echo, input: 2}, {name: z, block: echo, input: 3}]
""" + ECHO  # fmt: skip


def test_wait_all_requires_all_branches_to_succeed() -> None:
    play = Play(RACE % "All")
    assert play.scheduled == {"race.x/inner": 1, "race.y/inner": 2, "race.z/inner": 3}
    for branch in "zxy":
        play.completes(f"race.{branch}/inner", branch)
    assert play.result == {"x": "x", "y": "y", "z": "z"}


def test_one_failed_branch_fails_wait_all() -> None:
    play = Play(RACE % "All")
    play.fails("race.y/inner")
    assert play.cancelled == ["race.x/inner", "race.z/inner"]
    assert play.failure.kind is FailureKind.ACTIVITY


def test_the_first_branch_wins_and_the_losers_are_cancelled() -> None:
    play = Play(RACE % "Any")
    play.fails("race.x/inner")
    assert not play.closed
    play.completes("race.z/inner", "won")
    assert play.cancelled == ["race.y/inner"]
    assert play.result == {"z": "won"}


def test_wait_n_requires_n_branches_to_succeed() -> None:
    play = Play(RACE % "2")
    play.completes("race.x/inner", 1)
    play.completes("race.y/inner", 2)
    assert play.cancelled == ["race.z/inner"]
    assert play.result == {"x": 1, "y": 2}
    play = Play(RACE % "2")
    play.fails("race.x/inner")
    play.fails("race.y/inner")
    assert play.cancelled == ["race.z/inner"]
    assert play.failure.type == "BranchesFailed"
