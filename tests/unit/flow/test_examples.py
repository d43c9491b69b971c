"""The flows of the examples, in this process."""

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import perdure.flow as pf
from support.manuals import REPOSITORY


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(REPOSITORY / "examples" / "flow"))
    yield importlib.import_module("sweep")
    sys.modules.pop("sweep", None)


def test_a_sweep_trains_the_better_half_longer_and_stops_when_one_is_good_enough(sweep: Any) -> None:
    run = pf.LocalRun()
    run.lose(sweep.train)
    best = run.run(sweep.sweep, [0.01, 0.1, 1.0, 5.0])
    assert (best.lr, best.epochs) == (1.0, 4)
    assert best.score >= 0.9
    rounds = [{"lr": call.arguments["lr"], "epochs": call.arguments["epochs"]} for call in run.calls if not call.error]
    assert sorted((each["epochs"], each["lr"]) for each in rounds) == [
        (2, 0.01),
        (2, 0.1),
        (2, 1.0),
        (2, 5.0),
        (4, 1.0),
        (4, 5.0),
    ], "there is no third round"
    assert "train[lr=1.0]" in {call.id for call in run.calls}


def test_a_sweep_without_a_good_model_returns_the_best(sweep: Any) -> None:
    assert pf.LocalRun().run(sweep.sweep, [0.01, 0.02], target=1.0).lr == 0.02


def test_activities_pass_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "examples" / "flow"))
    files = importlib.import_module("files")
    run = pf.LocalRun()
    assert run.run(files.inventory, ["north", "south"]) == 2 * 2858
    assert [call.id for call in run.calls] == ["count[shop=north]", "count[shop=south]", "summarize", "total"]
    sys.modules.pop("files")
