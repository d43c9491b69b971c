"""A run of code as the cluster would have it: the real engine and status, with made-up workers and times."""

from typing import Any

from perdure.controller.runs.status import StatusComposer
from perdure.view.page import Page
from perdure.view.runs.run import RunView, read_run
from support.engine.coded import Coded
from support.view.flow import UID


def object_of(run: Coded) -> dict[str, Any]:
    """The WorkflowRun of a run of code."""
    made: dict[str, Any] = {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "WorkflowRun",
        "metadata": {"name": "k9", "namespace": "shop", "uid": UID, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"workflow": {"type": "Order", "taskQueue": "orders"}, "workflowId": "order-1"},
    }
    return {**made, "status": StatusComposer(UID).compose(made, run.state, run.events, run.now)}


def view_of(run: Coded) -> RunView:
    """The run as the command reads it."""
    return read_run(object_of(run), now=run.now)


def page(run: Coded, width: int = 100) -> Page:
    """The page to show a run on."""
    return Page(now=run.now, width=width)
