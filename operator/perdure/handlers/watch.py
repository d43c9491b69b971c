"""What kopf watches for us. The handlers only pass on what they see; they write nothing, so kopf patches nothing."""

from typing import Any

import kopf

from perdure.api.common import GROUP, VERSION
from perdure.api.labels import RUN_ID_LABEL
from perdure.controller.manager import Manager
from perdure.controller.operations import Operations

_DELETED = "DELETED"


def register(registry: kopf.OperatorRegistry, manager: Manager, operations: Operations) -> None:
    """Have kopf tell of runs, of Workflows, RetryPolicies and Schedules, of the pods of runs, and of Operations."""

    @kopf.on.event(GROUP, VERSION, "workflowruns", registry=registry)
    async def run_seen(event: kopf.RawEvent, **_: Any) -> None:
        manager.on_run(dict(event["object"]), deleted=event["type"] == _DELETED)

    @kopf.on.event(GROUP, VERSION, "workflows", registry=registry)
    async def workflow_seen(event: kopf.RawEvent, **_: Any) -> None:
        manager.on_workflow(dict(event["object"]), deleted=event["type"] == _DELETED)

    @kopf.on.event(GROUP, VERSION, "retrypolicies", registry=registry)
    async def policy_seen(event: kopf.RawEvent, **_: Any) -> None:
        manager.on_policy(dict(event["object"]), deleted=event["type"] == _DELETED)

    @kopf.on.event(GROUP, VERSION, "schedules", registry=registry)
    async def schedule_seen(event: kopf.RawEvent, **_: Any) -> None:
        manager.on_schedule(dict(event["object"]), deleted=event["type"] == _DELETED)

    @kopf.on.event("", "v1", "pods", labels={RUN_ID_LABEL: kopf.PRESENT}, registry=registry)
    async def pod_seen(event: kopf.RawEvent, **_: Any) -> None:
        manager.on_pod(dict(event["object"]), deleted=event["type"] == _DELETED)

    @kopf.on.event(GROUP, VERSION, "operations", registry=registry)
    async def operation_seen(event: kopf.RawEvent, **_: Any) -> None:
        operations.on_operation(dict(event["object"]), deleted=event["type"] == _DELETED)
