"""How long expressions that are as expensive as possible block the operator: compiled, checked, evaluated.

Prints the slowest. That each is bounded is asserted by `tests/unit/language/test_hostile.py`, in units of work.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.handlers.main import tune_garbage_collector
from perdure.language.checks import check
from perdure.language.expressions import ExpressionError, compile_template
from support.hostile import ATTACKS, HOSTILE, SOURCES

pytestmark = pytest.mark.bench

SHOWN = 5


def milliseconds(what: Callable[[], object]) -> float:
    started = time.thread_time()
    with suppress(ExpressionError):
        what()
    return (time.thread_time() - started) * 1_000


def show(title: str, took: dict[str, float]) -> None:
    slowest = sorted(took.items(), key=lambda each: -each[1])[:SHOWN]
    print(f"{title}: {len(took)} expressions, slowest of three tries at best:")
    for name, each in slowest:
        print(f"  {each:7.1f} ms  {name}")


@pytest.fixture(autouse=True)
def as_in_the_operator() -> Iterator[None]:
    """Memory is looked through as rarely as there."""
    before = gc.get_threshold()
    tune_garbage_collector()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def best(what: Callable[[], object]) -> float:
    return min(milliseconds(what) for _ in range(3))


def test_time_of_hostile_expressions() -> None:
    templates = {name: compile_template(f"${{{source}}}") for name, source, _ in ATTACKS}
    show("Evaluated", {name: best(lambda t=t: t.evaluate(HOSTILE)) for name, t in templates.items()})
    sources = {ascii(source[:30]): source for source in SOURCES}
    # The comment makes the source unique, so that no cache has it.
    show(
        "Compiled",
        {n: best(lambda s=s: compile_template(f"${{{s} //{time.perf_counter_ns()}\n}}")) for n, s in sources.items()},
    )

    def checked(source: str) -> object:
        text = f"${{{source} //{time.perf_counter_ns()}\n}}"
        return check(WorkflowSpec.model_construct(steps=WorkflowSpec.parse({"steps": [STEP]}).steps, output=text))

    everything = {**sources, **{name: source for name, source, _ in ATTACKS}}
    show("Compiled and checked", {name: best(lambda s=s: checked(s)) for name, s in everything.items()})


STEP = {"name": "nap", "sleep": {"duration": "1s"}}
