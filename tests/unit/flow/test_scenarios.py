"""Scenarios for flows: `perdure simulate` and `perdure test` run a flow in this process, as a scenario in YAML decides."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.cli import perdure
from support.manuals import REPOSITORY

MODULE = """
from datetime import timedelta
import perdure.flow as pf
from temporalio import workflow

shop = pf.Environment("shop")

@shop.activity(timeout="1h", retries=2, heartbeat="1m")
def charge(card: str, amount: int) -> str:
    return f"{card}:{amount}"

@shop.activity(retries=0)
def refund(receipt: str) -> None:
    ...

@shop.flow
async def order(card: str, amount: int = 7) -> str:
    async with pf.Saga() as saga:
        receipt = await charge(card, amount)
        saga.compensate(refund, receipt)
        if not await pf.signal("ship", bool, timeout="1d"):
            raise ValueError("not shipped")
        return receipt

@shop.flow
async def countdown(count: int) -> int:
    await pf.sleep("1h")
    if count:
        workflow.continue_as_new(args=[{"count": count - 1}])
    return 0
"""


def simulated(folder: Path, *, code: int = 0, **scenario: Any) -> dict[str, Any]:
    """The report of a scenario."""
    result = invoked(folder, "--output", "json", **scenario)
    assert result.exit_code == code, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def invoked(folder: Path, *arguments: str, **scenario: Any) -> Any:
    (folder / "orders.py").write_text(MODULE)
    (folder / "scenario.yaml").write_text(yaml.safe_dump({"files": ["orders.py"], "workflow": "order", **scenario}))
    return perdure("simulate", "--scenario", str(folder / "scenario.yaml"), *arguments)


@pytest.fixture(autouse=True)
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(__import__("sys").modules, "orders", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))


SHIP = [{"at": "1h", "name": "ship", "input": True}]


def test_entries_decide_how_attempts_end_and_functions_do_the_rest(tmp_path: Path) -> None:
    entries = [{"lost": True}, {"fail": {"type": "Busy"}, "after": "10s"}, {"output": "R-1", "startsAfter": "5s"}]
    report = simulated(tmp_path, input={"card": "visa"}, activities={"charge": entries}, signals=SHIP)
    assert (report["phase"], report["output"], report["elapsed"]) == ("Completed", "R-1", 3600)
    attempts = report["attempts"]["charge"]
    assert [(each["outcome"], each["start"]) for each in attempts] == [("Lost", 0), ("Failed", 1), ("Completed", 12)]
    assert attempts[1]["failure"]["type"] == "Busy"
    real = simulated(tmp_path, input={"card": "visa"}, signals=SHIP)
    assert real["output"] == "visa:7"


def test_what_hangs_times_out_and_what_is_not_awaited_is_running(tmp_path: Path) -> None:
    report = simulated(tmp_path, input={"card": "visa"}, activities={"charge": [{"hang": True}]})
    assert report["phase"] == "Failed"
    assert [each["outcome"] for each in report["attempts"]["charge"]] == ["TimedOut"] * 3
    assert report["failure"]["cause"]["type"] == "Timeout"
    assert report["elapsed"] == 60 + 1 + 60 + 2 + 60


def test_expectations_are_compared(tmp_path: Path) -> None:
    expect = {
        "phase": "Completed",
        "failureType": "Busy",
        "elapsed": "2d",
        "attempts": {"refund": 2},
        "runs": 2,
        "output": 1,
    }
    report = simulated(tmp_path, code=1, input={"card": "visa"}, expect=expect)
    phase, *others = report["unmet"]
    assert phase.startswith("phase: expected Completed, got Failed (the signal ship did not arrive within 1d")
    assert others == [
        "output: expected 1, got none, it is Failed",
        "failureType: expected Busy, got TimeoutError",
        "elapsed: expected 2d, got 1d",
        "runs: expected 2, got 1",
        "attempts.refund: expected 2, got 1: Completed",
    ]


def test_a_cancelled_flow_compensates(tmp_path: Path) -> None:
    report = simulated(tmp_path, input={"card": "visa"}, cancelAt="2h", expect={"phase": "Cancelled"})
    assert report["attempts"]["refund"][0]["outcome"] == "Completed"
    report = simulated(tmp_path, input={"card": "visa"}, activities={"charge": [{"after": "3m"}]}, cancelAt="1m")
    assert [each["outcome"] for each in report["attempts"]["charge"]] == ["Cancelled"]


def test_continued_runs_are_counted(tmp_path: Path) -> None:
    expect = {"runs": 4, "elapsed": "4h", "output": 0}
    assert simulated(tmp_path, workflow="countdown", input={"count": 3}, expect=expect)["unmet"] == []


def test_a_flow_that_waits_for_nothing_to_come_is_running(tmp_path: Path) -> None:
    module = MODULE.replace(', timeout="1d"', "")
    (tmp_path / "waiting.py").write_text(module)
    report = simulated(tmp_path, files=["waiting.py"], input={"card": "visa"}, expect={"phase": "Running"})
    assert "waits for something" in report["waitsFor"][0]


def test_the_text_shows_attempts_and_the_outcome(tmp_path: Path) -> None:
    entries = [{"fail": {"type": "Busy", "message": "try later"}}]
    shown = invoked(tmp_path, input={"card": "visa"}, activities={"charge": entries}, expect={"failureType": "Busy"})
    assert "+1s   charge[card=visa,amount=7]  2" in shown.output
    assert "Busy: try later" in shown.output
    assert "✓ met" in shown.output


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ({"workflow": "other"}, "has `countdown`, `order`; it has no flow `other`"),
        ({"workflow": None}, "set `workflow` to one of its flows"),
        (
            {"activities": {"pay": [{}]}},
            "activities.pay: there is no such activity; the flow's module has `charge`, `refund`",
        ),
        ({"pauseAt": "1h"}, "`pauseAt` is only for Workflows in YAML"),
        ({"activities": {"charge": [{"disrupted": True}]}}, "`disrupted` is only for Workflows in YAML"),
        ({"input": {"amount": "7"}}, "missing a required argument: 'card'"),
        ({"strict": True, "input": {"card": "visa"}}, "the activity `charge` has no entry, but `strict` is set"),
        ({"files": ["absent.py"]}, "cannot be imported"),
    ],
    ids=[
        "no such flow",
        "several flows",
        "no such activity",
        "a field of runs",
        "a field of pods",
        "arguments",
        "strict",
        "no module",
    ],
)
def test_what_a_scenario_of_a_flow_cannot_say_is_an_error(
    scenario: dict[str, Any], message: str, tmp_path: Path
) -> None:
    given = {key: value for key, value in {"workflow": "order", **scenario}.items() if value is not None}
    (tmp_path / "orders.py").write_text(MODULE)
    (tmp_path / "scenario.yaml").write_text(yaml.safe_dump({"files": ["orders.py"], **given}))
    result = perdure("simulate", "--scenario", str(tmp_path / "scenario.yaml"))
    assert result.exit_code == 2
    assert message in result.output


def test_the_scenarios_of_the_example_are_met() -> None:
    result = perdure("test", str(REPOSITORY / "examples" / "flow"))
    assert result.exit_code == 0, result.output
    assert "3 as expected" in result.output


BANK = """
import perdure.flow as pf

bank = pf.Environment("bank")

@bank.activity(retry="patient")
def pay(amount: int) -> int:
    return amount

@bank.flow
async def payment(amount: int) -> int:
    return await pay(amount)
"""
PATIENT = """
apiVersion: perdure.dev/v1alpha1
kind: RetryPolicy
metadata: {name: patient}
spec:
  cloudScheduler: {retryCount: 2, minBackoffDuration: 30s}
"""


def test_retry_policies_of_the_files_decide_about_activities_that_name_them(tmp_path: Path) -> None:
    (tmp_path / "bank.py").write_text(BANK)
    (tmp_path / "patient.yaml").write_text(PATIENT)
    payment = {"files": ["bank.py"], "workflow": "payment", "input": {"amount": 3}}
    attempts = {"pay": [{"fail": {"type": "Busy"}}, {"lost": True}, {"fail": {"type": "Busy"}}, {"output": 3}]}
    report = simulated(tmp_path, **payment, retryPolicies=["patient.yaml"], activities=attempts)
    assert (report["output"], report["elapsed"]) == (3, 30 + 30 + 60)
    without = invoked(tmp_path, **payment)
    assert "the activity `pay` uses the RetryPolicy `patient`, which is in no file" in " ".join(without.output.split())
