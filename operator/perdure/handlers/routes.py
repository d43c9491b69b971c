"""The kinds that the operator watches, and the method that takes the events of each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from perdure.api.common import GROUP, VERSION
from perdure.api.labels import RUN_ID_LABEL
from perdure.controller.manager import Manager
from perdure.controller.operations.operations import Operations
from perdure.kube.client import Object


class Take(Protocol):
    """Takes an object that was listed, created, changed, or deleted. It only notes the object."""

    def __call__(self, obj: Object, *, deleted: bool) -> None:
        """Take it."""


@dataclass(frozen=True, slots=True)
class Route:
    """The events of one kind."""

    group: str
    version: str
    plural: str
    take: Take
    label: str | None = None
    """A label that objects must have; None selects all objects."""


def routes(manager: Manager, operations: Operations) -> Iterator[Route]:
    """Runs, Workflows, RetryPolicies, WorkflowLimits and Schedules, the pods of runs, and Operations."""
    yield Route(GROUP, VERSION, "workflowruns", manager.on_run)
    yield Route(GROUP, VERSION, "workflows", manager.on_workflow)
    yield Route(GROUP, VERSION, "retrypolicies", manager.on_policy)
    yield Route(GROUP, VERSION, "workflowlimits", manager.on_limit)
    yield Route(GROUP, VERSION, "schedules", manager.on_schedule)
    yield Route("", "v1", "pods", manager.on_pod, label=RUN_ID_LABEL)
    yield Route(GROUP, VERSION, "operations", operations.on_operation)
