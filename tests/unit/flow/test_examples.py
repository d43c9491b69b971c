"""The flows of the examples, in this process."""

import importlib
import sys
from collections.abc import Callable, Iterator
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


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Import an example by its name."""
    monkeypatch.syspath_prepend(str(REPOSITORY / "examples" / "flow"))
    before = set(sys.modules)
    yield importlib.import_module
    for name in ("files", "delivery", "subscription"):
        if name not in before:
            sys.modules.pop(name, None)


def test_activities_share_a_workspace(example: Callable[[str], Any]) -> None:
    found = example("delivery")
    run = pf.LocalRun()
    run.lose(found.build)
    size = run.run(found.release, ["shop", "bank"])
    names = {each.name for each in run.folder_of(found.source).iterdir()}
    assert names == {"shop.py", "bank.py", "shop.pyc", "bank.pyc", "release.zip"}
    assert size == (run.folder_of(found.source) / "release.zip").stat().st_size


def test_activities_pass_files(example: Callable[[str], Any]) -> None:
    files = example("files")
    run = pf.LocalRun()
    assert run.run(files.inventory, ["north", "south"]) == 2 * 2858
    assert [call.id for call in run.calls] == ["count[shop=north]", "count[shop=south]", "summarize", "total"]


def test_a_subscription_lasts_for_years(example: Callable[[str], Any]) -> None:
    shop = example("subscription")
    run = pf.LocalRun()
    run.send_signal("plan", "team", after="40d")
    run.send_signal("leave", after="800d")
    account = run.run(shop.subscription, "ada")
    months = 1 + (800 - 14) // 30
    assert (account.months, account.paid, account.plan) == (months, 9 + 29 * (months - 1), shop.Plan.TEAM)
    assert run.runs == 3, "a run a year"
    assert [call.arguments["text"] for call in run.calls if call.activity == "say"] == ["welcome", "goodbye"]


def test_a_customer_who_leaves_in_the_trial_pays_nothing(example: Callable[[str], Any]) -> None:
    shop = example("subscription")
    run = pf.LocalRun()
    run.send_signal("leave", after="3d")
    assert run.run(shop.subscription, "ada").paid == 0


def test_a_card_that_fails_for_a_week_ends_the_subscription(example: Callable[[str], Any]) -> None:
    shop = example("subscription")
    run = pf.LocalRun()
    run.fail(shop.charge, ConnectionError("no route to the bank"), times=3)
    run.fail(shop.charge, RuntimeError("no money"), times=4)
    assert run.run(shop.subscription, "ada").months == 0
    assert [call.attempt for call in run.calls if call.activity == "charge"] == [1, 2, 3, 4, 5, 6, 7]
    assert "no money" in run.calls[-1].arguments["text"]
