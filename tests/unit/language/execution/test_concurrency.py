"""`maxConcurrency` of a list of steps, for random graphs and random orders of completion."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from unit.language.execution.play import Play, do


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    """The needs of each step: some of the steps before it."""
    count = draw(st.integers(1, 8))
    return [sorted(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else [] for i in range(count)]


@settings(max_examples=100, deadline=None)
@given(graphs(), st.integers(1, 4), st.randoms(use_true_random=False))
def test_random_graphs_use_exactly_the_allowed_concurrency(graph: list[list[int]], limit: int, random: Random) -> None:
    names = [f"s{i}" for i in range(len(graph))]
    needs = {name: {names[j] for j in of} for name, of in zip(names, graph, strict=True)}
    steps = [do(name, needs=f"[{', '.join(sorted(needs[name]))}]") for name in names]
    play = Play(f"{{maxConcurrency: {limit}, steps: [{', '.join(steps)}]}}")
    ended: set[str] = set()
    while not play.closed:
        begun = list(play.scheduled)
        running = [name for name in begun if name not in ended]
        ready = [name for name in names if name not in begun and needs[name] <= ended]
        assert 1 <= len(running) <= limit
        assert not ready or len(running) == limit
        name = random.choice(running)
        ended.add(name)
        play.completes(name, name)
    assert ended == set(names)
    assert play.result == names[-1]
