"""The examples of the guides for Prefect, Dagster, and Flyte, as flows in this process."""

import re
from datetime import UTC, date, datetime
from types import ModuleType
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

import perdure.flow as pf
from support.manuals import REPOSITORY


def example(guide: str) -> Any:
    """The module with the converted example of a guide: its last program."""
    page = (REPOSITORY / "docs" / guide).read_text(encoding="utf-8")
    module = ModuleType(guide.removesuffix(".md").replace("-", "_"))
    exec(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[-1], module.__dict__)
    return module


def test_the_flow_from_prefect_undoes_the_load_if_it_cannot_be_published() -> None:
    module = example("from-prefect.md")
    run = pf.LocalRun()
    run.lose(module.extract)
    run.send_signal("approve", True, after="2h")
    assert run.run(module.nightly, date(2026, 11, 27), ["eu", "usa"]) == "published batch-135"
    failing = pf.LocalRun()
    failing.fail(module.publish, ConnectionError("the shop is down"), times=4)
    failing.send_signal("approve", True)
    with pytest.raises(Exception, match="Activity task failed"):
        failing.run(module.nightly, date(2026, 11, 27), ["eu"])
    assert failing.calls[-1].activity == "unload"
    rejected = pf.LocalRun()
    rejected.send_signal("approve", False)
    with pytest.raises(ApplicationError, match="rejected"):
        rejected.run(module.nightly, date(2026, 11, 27), ["eu"])


def test_the_flow_from_dagster_reports_what_has_failed() -> None:
    module = example("from-dagster.md")
    assert module.nightly.run_local("2026-11-27") == len("sales-2026-11-27.csv") + len("stock-2026-11-27.csv")
    assert pf.LocalRun(start=datetime(2026, 11, 27, 1, 30, tzinfo=UTC)).run(module.nightly) == 40
    run = pf.LocalRun()
    run.replace(module.load, lambda file: 1 // int("stock" in file))
    with pytest.raises(ApplicationError, match="1 of 2 calls of load failed"):
        run.run(module.nightly, "2026-11-27")
    assert run.calls[-1].arguments == {"rows": [1], "failed": ["file=sales-2026-11-27.csv"]}
    assert [call.outcome for call in run.calls if call.arguments == {"file": "sales-2026-11-27.csv"}] == ["Failed"] * 3


def test_the_flow_from_flyte_deploys_the_best_model() -> None:
    module = example("from-flyte.md")
    run = pf.LocalRun()
    run.lose(module.train, times=2)
    assert run.run(module.main, [0.5, 0.2, 0.01]) == "deployed the model with 0.01"
    assert "train[rate=0.01]" in {call.id for call in run.calls}
