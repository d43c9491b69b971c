"""Simulated runs use cached results: their own, and those of earlier runs in the scenario."""

import pytest

from perdure.simulation.manifests import BadFileError
from unit.simulation.stage import play

FLOW = """
activities:
- name: ask
  startToCloseTimeout: 1m
  container: {image: i}
  cache: {key: "${input}", maxAge: 1h}
- {name: other, startToCloseTimeout: 1m, container: {image: i}}
steps:
- {name: one, activity: {name: ask, input: a}}
- {name: nap, sleep: {duration: 50m}}
- {name: two, activity: {name: ask, input: a}}
- {name: longer, sleep: {duration: 20m}}
- {name: three, activity: {name: ask, input: a}}
output: "${[steps.one.output, steps.two.output, steps.three.output]}"
"""


def test_a_result_is_used_until_it_is_too_old() -> None:
    played = play(FLOW, "activities: {ask: [{output: 1}, {output: 2}]}")
    assert played.json["output"] == [1, 1, 2]
    assert len(played.attempts("ask")) == 2


def test_a_scenario_has_results_of_earlier_runs() -> None:
    played = play(
        FLOW, "{activities: {ask: [{output: 2}]}, cached: {ask: [{key: a, output: 1, age: 5m}, {key: b, output: 3}]}}"
    )
    assert played.json["output"] == [1, 1, 2]
    assert len(played.attempts("ask")) == 1


@pytest.mark.parametrize("name", ["aks", "other"])
def test_only_activities_with_a_cache_have_cached_results(name: str) -> None:
    with pytest.raises(BadFileError, match=rf"cached\.{name}: unknown activity with `cache`; known: `ask`"):
        play(FLOW, f"cached: {{{name}: [{{key: a}}]}}")
