"""The workers and the endpoint of examples/nexus, as they are, against an operator in memory."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest
import yaml
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from support.manuals import REPOSITORY
from support.operator import in_memory

FOLDER = REPOSITORY / "examples" / "nexus"


@contextmanager
def modules(*names: str) -> Iterator[list[ModuleType]]:
    """Modules of the example, among their neighbors: the SDK's sandbox finds them by their names."""
    sys.path.insert(0, str(FOLDER))
    try:
        yield [importlib.import_module(name) for name in names]
    finally:
        sys.path.remove(str(FOLDER))


async def test_a_purchase_is_charged_in_another_namespace_or_rejected_with_the_reason() -> None:
    endpoint = yaml.safe_load((FOLDER / "endpoint.yaml").read_text(encoding="utf-8"))
    with (
        modules("billing", "handler", "caller") as (billing, handler, caller),
        in_memory("orders", "bills", config_maps=[endpoint]) as server,
    ):
        orders = await Client.connect(server.address, namespace="orders")
        bills = await Client.connect(server.address, namespace="bills")
        async with handler.worker(bills), caller.worker(orders):
            for customer in ("ada", "broke"):
                purchase = billing.Purchase(order_id=customer, customer=customer, amount=100)
                handle = await orders.start_workflow(
                    caller.PurchaseWorkflow.run, purchase, id=customer, task_queue=caller.TASK_QUEUE
                )
                if customer == "ada":
                    assert await handle.result() == "receipt-ada: 120"
                    assert await bills.get_workflow_handle("charge-ada").result() == "receipt-ada"
                    continue
                with pytest.raises(WorkflowFailureError) as caught:
                    await handle.result()
                assert isinstance(caught.value.cause, ApplicationError)
                assert "no money" in str(caught.value.cause)


def test_the_manifest_of_the_example_matches_its_worker() -> None:
    run = yaml.safe_load((FOLDER / "run.yaml").read_text(encoding="utf-8"))
    with modules("caller") as (caller,):
        said = {"type": caller.PurchaseWorkflow.__name__, "taskQueue": caller.TASK_QUEUE}
        assert run["spec"]["workflow"] == said


def test_the_endpoint_of_the_example_matches_its_handler_and_caller() -> None:
    with modules("billing", "handler") as (billing, handler):
        data = yaml.safe_load((FOLDER / "endpoint.yaml").read_text(encoding="utf-8"))["data"]
        found = yaml.safe_load(data[billing.ENDPOINT])
        assert (found["namespace"], found["taskQueue"], found["allowedCallers"]) == (
            "bills",
            handler.TASK_QUEUE,
            ["orders"],
        )
