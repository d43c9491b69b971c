"""The kinds that the operator watches, and the method that handles the events of each kind."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from perdure.api.labels import GROUP, RUN_ID_LABEL, VERSION
from perdure.controller.manager import Manager
from perdure.controller.operations.operations import Operations
from perdure.kube.client import Object


class ObjectHandler(Protocol):
    """Handles an object that was listed, created, changed, or deleted, by recording it for later processing."""

    def __call__(self, obj: Object, *, deleted: bool) -> None:
        """Handle the object."""


@dataclass(frozen=True, slots=True)
class WatchRoute:
    """The events of one kind."""

    group: str
    version: str
    plural: str
    take: ObjectHandler
    label: str | None = None
    """A label that objects must have; None selects all objects."""


def routes(manager: Manager, operations: Operations) -> Iterator[WatchRoute]:
    """Yield the routes of runs, what they refer to, Webhooks, Schedules, the pods of runs, and Operations."""
    yield WatchRoute(GROUP, VERSION, "workflowruns", manager.on_run)
    yield WatchRoute(GROUP, VERSION, "workflows", manager.referenced.take_workflow)
    yield WatchRoute(GROUP, VERSION, "retrypolicies", manager.referenced.take_policy)
    yield WatchRoute(GROUP, VERSION, "workflowlimits", manager.referenced.take_limit)
    yield WatchRoute(GROUP, VERSION, "webhooks", manager.on_webhook)
    yield WatchRoute(GROUP, VERSION, "schedules", manager.on_schedule)
    yield WatchRoute("", "v1", "pods", manager.on_pod, label=RUN_ID_LABEL)
    yield WatchRoute(GROUP, VERSION, "operations", operations.on_operation)
