"""The examples in examples/temporal, run as they are by the SDK's worker against the real operator."""

import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest
import yaml
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner

from kube import REPOSITORY
from temporal.conftest import Temporal, until

pytestmark = [pytest.mark.cluster, pytest.mark.alone]

FOLDER = REPOSITORY / "examples" / "temporal"


@pytest.fixture(scope="module")
def app() -> ModuleType:
    """The example as a module that the SDK's sandbox finds by its name."""
    spec = importlib.util.spec_from_file_location("temporal_example_app", FOLDER / "app.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["temporal_example_app"] = module
    spec.loader.exec_module(module)
    return module


def serving(temporal: Temporal, app: Any) -> Any:
    return temporal.worker(
        workflows=app.WORKFLOWS, activities=app.ACTIVITIES, workflow_runner=UnsandboxedWorkflowRunner()
    )


async def test_an_order_is_paid_and_shipped_or_refused_with_its_reason(temporal: Temporal, app: Any) -> None:
    async with serving(temporal, app):
        run = app.OrderWorkflow.run
        assert await temporal.run(run, app.Order("1", 30)) == "payment-1, parcel-1"
        assert await temporal.run(run, app.Order("2", 30, "slow")) == "payment-2, parcel-2"
        with pytest.raises(WorkflowFailureError) as caught:
            await temporal.run(run, app.Order("3", 30, "stolen"))
    assert isinstance(caught.value.cause, ApplicationError)
    assert caught.value.cause.type == "CardStolen"


async def test_a_trip_is_undone_in_reverse_and_what_cannot_be_is_told(temporal: Temporal, app: Any) -> None:
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


async def test_a_file_is_gone_on_with_where_it_was_interrupted(temporal: Temporal, app: Any) -> None:
    async with serving(temporal, app):
        assert await temporal.run(app.FileWorkflow.run, 40) == 40


async def test_a_schedule_starts_every_night_what_can_be_triggered_now(temporal: Temporal, app: Any) -> None:
    schedule = await app.count_every_night(temporal.client, temporal.task_queue)
    try:
        found = temporal.operator.cluster.get("schedule", "nightly-count")
        assert found is not None
        assert found["spec"]["cron"] == ["0 2 * * *"]
        async with serving(temporal, app):
            await schedule.trigger()
            [action] = (await schedule.describe()).info.recent_actions
            started: Any = action.action
            assert await temporal.client.get_workflow_handle(started.workflow_id).result() == 100
    finally:
        await schedule.delete()


async def test_the_manifest_of_a_run_starts_the_workflow(temporal: Temporal, app: Any) -> None:
    manifest = yaml.safe_load((FOLDER / "run.yaml").read_text())
    manifest["spec"]["workflow"]["taskQueue"] = temporal.task_queue
    temporal.operator.cluster.apply(manifest)
    async with serving(temporal, app):
        assert await temporal.client.get_workflow_handle("order-17").result() == "payment-17, parcel-17"
