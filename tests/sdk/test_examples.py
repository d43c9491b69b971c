"""The examples in examples/temporal, run as they are by the SDK's worker against the real operator."""

import asyncio
import importlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError, TerminatedError

from support.cluster.namespace import IMAGE
from support.example_code import example_module
from support.manuals import REPOSITORY
from support.sdk.client import Temporal, until

FOLDER = REPOSITORY / "examples" / "temporal"


@pytest.fixture(scope="module")
def app() -> Iterator[Any]:
    """The module of the worker."""
    with example_module("temporal", "app") as module:
        yield module


def serving(temporal: Temporal, app: Any) -> Any:
    return temporal.worker(workflows=app.WORKFLOWS, activities=app.ACTIVITIES)


async def test_the_hello_workflow_answers_a_query_and_a_signal(temporal: Temporal) -> None:
    with example_module("temporal", "hello") as hello:
        assert await hello.run(temporal.client) == "hello Ada, approved by Grace"


async def test_an_order_is_paid_and_shipped_or_rejected_with_its_reason(temporal: Temporal, app: Any) -> None:
    async with serving(temporal, app):
        run = app.OrderWorkflow.run
        order = importlib.import_module("orders").Order
        assert await temporal.run(run, order("1", 30)) == "payment-1, parcel-1"
        assert await temporal.run(run, order("2", 30, "slow")) == "payment-2, parcel-2"
        with pytest.raises(WorkflowFailureError) as caught:
            await temporal.run(run, order("3", 30, "stolen"))
    assert isinstance(caught.value.cause, ApplicationError)
    assert caught.value.cause.type == "CardStolen"


async def test_a_refund_is_made_once_without_a_workflow(temporal: Temporal, app: Any) -> None:
    refunds = importlib.import_module("refunds")
    order = temporal.task_queue
    async with serving(temporal, app):
        both = [refunds.refund_order(temporal.client, order, temporal.task_queue) for _ in range(2)]
        assert await asyncio.gather(*both) == [f"refund-{order}"] * 2
    assert (await temporal.client.count_activities(f"ActivityId = 'refund-{order}'")).count == 1


async def test_a_trip_is_compensated_in_reverse_and_failed_compensations_are_reported(
    temporal: Temporal, app: Any
) -> None:
    async with serving(temporal, app):
        assert await temporal.run(app.TripWorkflow.run, ["flight", "hotel", "car"]) == [
            "flight-booked",
            "hotel-booked",
            "hotel stays booked: TooLate: too late to cancel the hotel",
            "flight-cancelled",
        ]


async def test_a_subscription_bills_until_it_is_cancelled(temporal: Temporal, app: Any) -> None:
    async with serving(temporal, app):
        handle = await temporal.start(app.SubscriptionWorkflow.run, "Ada", 600)

        async def billed() -> Any:
            return await handle.query(app.SubscriptionWorkflow.so_far)

        assert await until("the first bill", billed) == ["Ada paid for month 1"]
        await handle.cancel()
        assert await handle.result() == ["Ada paid for month 1", "goodbye"]


async def test_a_file_is_processed_from_where_it_was_interrupted(temporal: Temporal, app: Any) -> None:
    async with serving(temporal, app):
        assert await temporal.run(app.FileWorkflow.run, 40) == 40


@pytest.mark.cluster
async def test_a_nightly_schedule_can_be_triggered_manually(temporal: Temporal, app: Any) -> None:
    schedule = await importlib.import_module("files").count_every_night(temporal.client, temporal.task_queue)
    try:
        found = temporal.cluster.get("schedule", "nightly-count")
        assert found is not None
        assert found["spec"]["cron"] == ["0 2 * * *"]
        async with serving(temporal, app):
            await schedule.trigger()

            async def acted() -> Any:
                return (await schedule.describe()).info.recent_actions

            [action] = await until("the schedule to have acted", acted)
            started: Any = action.action
            assert await temporal.client.get_workflow_handle(started.workflow_id).result() == 100
    finally:
        await schedule.delete()


@pytest.mark.cluster
async def test_the_manifest_of_a_run_starts_the_workflow(temporal: Temporal, app: Any) -> None:
    manifest = yaml.safe_load((FOLDER / "run.yaml").read_text())
    manifest["spec"]["workflow"]["taskQueue"] = temporal.task_queue
    temporal.cluster.apply(manifest)
    async with serving(temporal, app):
        assert await temporal.client.get_workflow_handle("order-17").result() == "payment-17, parcel-17"


def left_in(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


async def test_a_film_that_takes_too_long_is_stopped_and_cleaned_up(
    temporal: Temporal, app: Any, tmp_path: Path
) -> None:
    async with serving(temporal, app):
        run = app.RenderWorkflow.run
        assert await temporal.run(run, "short", str(tmp_path), 1, 600) == "short is ready"
        handle = await temporal.start(run, "long", str(tmp_path), 1_000_000, 2)
        assert await handle.result() == "long takes too long"
        names = await temporal.names(handle)
    assert "ActivityTaskCanceled" in names
    assert left_in(tmp_path) == []


async def test_a_preview_is_shown_until_the_decision(temporal: Temporal, app: Any, tmp_path: Path) -> None:
    async with serving(temporal, app):
        handle = await temporal.start(app.ReviewWorkflow.run, "film", str(tmp_path), 600)

        async def shown() -> bool:
            return (tmp_path / "film.part").exists()

        await until("the preview", shown)
        await handle.signal(app.ReviewWorkflow.decide, "too long")
        assert await handle.result() == "film: too long"
        assert left_in(tmp_path) == []
        late = await temporal.run(app.ReviewWorkflow.run, "late", str(tmp_path), 1)
    assert late == "late: nobody has looked at it"
    assert left_in(tmp_path) == []


def payout(name: str, bank: str) -> dict[str, Any]:
    return {"payout_id": name, "bank": bank, "amount": 10}


async def kept(temporal: Temporal, app: Any) -> dict[str, str]:
    """The dead letters, each with its failure."""
    letters = temporal.client.get_workflow_handle(f"{temporal.task_queue}-dead-letters")
    found: dict[str, str] = await letters.query(app.DeadLettersWorkflow.kept)
    return found


async def test_an_open_circuit_fails_fast_and_failed_payouts_can_be_redriven(temporal: Temporal, app: Any) -> None:
    async with serving(temporal, app):
        payouts = await temporal.start(app.PayoutsWorkflow.run, 2, 3600)
        pay = app.PayoutsWorkflow.pay
        away, open_ = "set aside: BankAway: the bank does not answer", "set aside: the circuit is open"
        said = [
            await payouts.execute_update(pay, payout(name, bank))
            for name, bank in (("1", "up"), ("2", "down"), ("3", "up"), ("4", "down"), ("5", "down"), ("6", "up"))
        ]
        assert said == ["paid 10", away, "paid 10", away, away, open_]
        assert set(await kept(temporal, app)) == {"2", "4", "5", "6"}
        letters = temporal.client.get_workflow_handle(f"{temporal.task_queue}-dead-letters")
        await letters.signal(app.DeadLettersWorkflow.redrive, "6")
        await letters.signal(app.DeadLettersWorkflow.redrive, "2")

        async def done() -> bool:
            found = await kept(temporal, app)
            return "6" not in found and found["2"].startswith("again")

        await until("what is left to be done again", done)
        assert set(await kept(temporal, app)) == {"2", "4", "5"}
        await payouts.signal(app.PayoutsWorkflow.close)
        assert await payouts.result() == 20


@pytest.mark.parametrize(("bank", "pauses"), [("up", 1), ("down", 2)])
async def test_a_half_open_circuit_admits_one_trial(temporal: Temporal, app: Any, bank: str, pauses: int) -> None:
    async with serving(temporal, app):
        payouts = await temporal.start(app.PayoutsWorkflow.run, 1, 1)
        await payouts.execute_update(app.PayoutsWorkflow.pay, payout("1", "down"))

        async def half_open() -> bool:
            state: str = await payouts.query(app.PayoutsWorkflow.state)
            return state == "half-open"

        await until("the end of the pause", half_open)
        await payouts.execute_update(app.PayoutsWorkflow.pay, payout("2", bank))
        assert (await temporal.names(payouts)).count("TimerStarted") == pauses


async def test_each_child_follows_its_parent_close_policy(temporal: Temporal, app: Any) -> None:
    async with serving(temporal, app):
        name = f"party-{uuid.uuid4().hex[:6]}"
        guests = await temporal.run(app.PartyWorkflow.run, id=name)
        assert guests == [f"{name}-abandon", f"{name}-terminate", f"{name}-request_cancel"]
        abandoned, terminated, cancelled = (temporal.client.get_workflow_handle(guest) for guest in guests)
        with pytest.raises(WorkflowFailureError) as thrown_out:
            await terminated.result()
        assert isinstance(thrown_out.value.cause, TerminatedError)
        assert await cancelled.result() == "left with the host"
        assert (await abandoned.describe()).status is WorkflowExecutionStatus.RUNNING
        await abandoned.signal(app.GuestWorkflow.leave)
        assert await abandoned.result() == "left when told to"


@pytest.mark.cluster
async def test_code_runs_its_activities_in_pods(temporal: Temporal, app: Any) -> None:
    manifest = yaml.safe_load((FOLDER / "checksums.yaml").read_text())
    manifest["spec"]["activities"][0]["container"]["image"] = IMAGE
    temporal.cluster.apply(manifest)
    async with serving(temporal, app):
        sums = await temporal.run(app.ChecksumsWorkflow.run, ["one", "two"])
    assert {text: found[:8] for text, found in sums.items()} == {"one": "7692c3ad", "two": "3fc4ccfe"}
