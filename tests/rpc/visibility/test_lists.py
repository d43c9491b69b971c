"""Lists and counts of workflows, and their filters."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import Payload, SearchAttributes
from temporalio.api.enums.v1 import CommandType, IndexedValueType, WorkflowIdReusePolicy
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
    RemoveSearchAttributesRequest,
)

from perdure.api.labels import STATE_VERSION_ANNOTATION
from perdure.api.search_attributes import REGISTRY
from perdure.api.state_versions import NEWEST
from perdure.frontend.errors import RpcError
from perdure.frontend.messages.values import from_enum, to_enum
from perdure.frontend.transport.rpc import CallContext
from perdure.simulation.cluster.store import ObjectKey
from rpc.served import QUEUE, Served, complete_workflow, names, served, timer


async def listed(here: Served, query: str) -> list[str]:
    found = await here.call("ListWorkflowExecutions", query=query)
    return sorted(each.execution.workflow_id for each in found.executions)


def number(value: bytes) -> SearchAttributes:
    return SearchAttributes(indexed_fields={"Size": Payload(metadata={"type": b"Int"}, data=value)})


async def register(here: Served, **types: str) -> None:
    kinds = {name: to_enum(IndexedValueType, kind) for name, kind in types.items()}
    await operate(here, "AddSearchAttributes", AddSearchAttributesRequest(namespace="default", search_attributes=kinds))


async def operate(here: Served, rpc: str, request: Any) -> Any:
    return await here.operator.do(here.frontend.handlers()[rpc](request, CallContext(None)))


async def registered(here: Served) -> dict[str, str]:
    found = await operate(here, "ListSearchAttributes", ListSearchAttributesRequest(namespace="default"))
    return {name: from_enum(IndexedValueType, kind) for name, kind in found.custom_attributes.items()}


def upsert(attributes: SearchAttributes) -> Command:
    command = Command(command_type=CommandType.COMMAND_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES)
    command.upsert_workflow_search_attributes_command_attributes.search_attributes.CopyFrom(attributes)
    return command


@served
async def test_a_run_that_only_refers_to_an_open_run_is_not_listed(here: Served) -> None:
    await here.start("w")
    spec = {"workflow": {"type": "Order", "taskQueue": QUEUE}, "workflowId": "w"}
    here.world.create("WorkflowRun", "again", {**spec, "workflowIdConflictPolicy": "UseExisting"})
    await asyncio.sleep(60)
    status = here.world.run("again")["status"]
    assert (status["phase"], status["conditions"][0]["reason"]) == ("Completed", "WorkflowExecutionAlreadyStarted")
    assert await listed(here, "") == ["w"]
    await here.decide(complete_workflow())


@served
async def test_a_run_that_a_finalizer_keeps_in_deletion_is_not_listed(here: Served) -> None:
    """kestra#8459: it is gone for everyone but its own finalizer."""
    await here.start("w")
    (name,) = here.world.runs()
    here.world.edit("workflowruns", name, lambda obj: obj["metadata"].update(finalizers=["example.com/audit"]))
    await asyncio.sleep(10)
    assert await listed(here, "") == ["w"]
    here.world.delete("workflowruns", name)
    await asyncio.sleep(10)
    assert here.world.run(name)["metadata"]["deletionTimestamp"]
    assert await listed(here, "") == []
    assert (await here.call("CountWorkflowExecutions")).count == 0
    here.world.edit("workflowruns", name, lambda obj: obj["metadata"].update(finalizers=[]))


@served
async def test_filters_accept_durations_and_all_spellings_of_a_status(here: Served) -> None:
    for name, minutes in (("short", 1), ("long", 90)):
        await here.start(name)
        await here.decide(timer("t", timedelta(minutes=minutes)))
    await here.decide(complete_workflow())
    await asyncio.sleep(3_600)
    await asyncio.sleep(1_800)
    await here.decide(complete_workflow())
    assert await listed(here, "ExecutionDuration > '1h'") == ["long"]
    assert await listed(here, "ExecutionDuration < '00:30:00'") == ["short"]
    assert await listed(here, f"ExecutionDuration < {10**9 * 60 * 30}") == ["short"]
    for status in ("'Completed'", "'WORKFLOW_EXECUTION_STATUS_COMPLETED'", "2"):
        assert await listed(here, f"ExecutionStatus = {status}") == ["long", "short"]
    assert await listed(here, "ExecutionStatus IN ('Running', 'Failed')") == []


@served
async def test_a_filter_value_that_no_run_can_have_is_rejected(here: Served) -> None:
    await register(here, Size="Int")
    await here.start(search_attributes=number(b"5"))
    assert await listed(here, "Size = 5 AND Size < 5.5") == ["w"]
    for query, message in {
        "ExecutionStatus = 'Runing'": "invalid query: invalid value for ExecutionStatus: 'Runing'; it can be Running, ",
        "ExecutionStatus IN ('Running', 'Done')": "'Done'",
        "Size = 'abc'": "invalid value for search attribute Size of type Int: 'abc'",
        "Size BETWEEN 1 AND true": "of type Int: True",
        "ExecutionDuration > 'long'": "'long' is not a duration such as '1h30m'",
        "StartTime > 'yesterday'": "'yesterday' is not an RFC 3339 time",
        "CloseTime > true": "of type Datetime: True",
        "WorkflowId = 5": "of type Keyword: 5",
        "TemporalSchedulePaused = 'true'": "of type Bool: 'true'",
        "NoSuch = 5": "NoSuch is not a valid search attribute",
        "WorkflowId = 'nothing' AND NoSuch = 5": "NoSuch is not a valid search attribute",
    }.items():
        for rpc in ("ListWorkflowExecutions", "CountWorkflowExecutions"):
            with pytest.raises(RpcError) as refused:
                await here.call(rpc, query=query)
            assert refused.value.code.name == "INVALID_ARGUMENT"
            assert message in refused.value.message


def start_child(**attributes: Any) -> Command:
    command = Command(command_type=CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION)
    said = command.start_child_workflow_execution_command_attributes
    said.workflow_id, said.workflow_type.name, said.task_queue.name = "child", "Order", QUEUE
    for name, value in attributes.items():
        setattr(said, name, value)
    return command


@served
async def test_a_child_whose_workflow_id_is_in_use_is_neither_listed_nor_counted(here: Served) -> None:
    await here.start("child")
    await here.decide(complete_workflow())
    await here.start("parent")
    reject = WorkflowIdReusePolicy.WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE
    await here.decide(start_child(workflow_id_reuse_policy=reject))
    task = await here.task()
    assert task.workflow_execution.workflow_id == "parent", "the parent learns that the child was refused"
    assert await listed(here, "") == ["child", "parent"]
    counted = await here.call("CountWorkflowExecutions", query="GROUP BY ExecutionStatus")
    assert [group.count for group in counted.groups] == [1, 1]


@served
async def test_every_search_attribute_is_listed_once(here: Served) -> None:
    versions = Payload(metadata={"type": b"KeywordList"}, data=b'["a-1"]')
    await here.start(search_attributes=SearchAttributes(indexed_fields={"TemporalChangeVersion": versions}))
    handler = here.frontend.handlers()["ListSearchAttributes"]
    found = await here.operator.do(handler(ListSearchAttributesRequest(namespace="default"), CallContext(None)))
    assert "TemporalChangeVersion" in found.system_attributes
    assert not set(found.system_attributes) & set(found.custom_attributes)


UNKNOWN = "Namespace default has no mapping defined for search attribute Size"


@served
async def test_search_attributes_must_be_registered(here: Served) -> None:
    async def refused(message: str, value: bytes) -> None:
        for rpc in ("StartWorkflowExecution", "SignalWithStartWorkflowExecution"):
            asked = {"workflow_id": "w", "workflow_type": {"name": "Order"}, "request_id": "r", "signal_name": "s"}
            with pytest.raises(RpcError) as caught:
                await here.call(rpc, search_attributes=number(value), **asked)
            assert (caught.value.code.name, caught.value.message) == ("INVALID_ARGUMENT", message)

    await refused(UNKNOWN, b"5")
    await register(here, Size="Int")
    await refused("invalid value for search attribute Size of type Int: x", b'"x"')
    await here.start(search_attributes=number(b"5"))
    await operate(
        here,
        "RemoveSearchAttributes",
        RemoveSearchAttributesRequest(namespace="default", search_attributes=["Size"]),
    )
    assert await registered(here) == {}
    with pytest.raises(RpcError, match=f"BadSearchAttributes: {UNKNOWN}"):
        await here.decide(upsert(number(b"6")))
    assert names(await here.history())[-2:] == ["WorkflowTaskFailed", "WorkflowTaskScheduled"]
    assert await listed(here, "Size = 5") == ["w"], "runs keep their values"


@served
async def test_a_registered_search_attribute_keeps_its_type(here: Served) -> None:
    await register(here, Size="Int", Day="Datetime")
    await register(here, Size="Text")
    assert await registered(here) == {"Size": "Int", "Day": "Datetime"}
    here.restart()
    assert await registered(here) == {"Size": "Int", "Day": "Datetime"}
    day = Payload(metadata={"type": b"Text"}, data=b'"2026-11-23T00:00:00Z"')
    await here.start(search_attributes=SearchAttributes(indexed_fields={"Day": day}))
    assert await listed(here, "Day < '2026-11-23T01:00:00+00:00'") == ["w"]


@served
async def test_an_upgrade_registers_search_attributes_of_existing_runs_once(here: Served) -> None:
    spec = {"workflow": {"type": "Order", "taskQueue": QUEUE}, "searchAttributes": {"Size": 5}}
    here.world.create("WorkflowRun", "old", spec)
    await asyncio.sleep(60)
    here.restart()
    await asyncio.sleep(60)
    assert await registered(here) == {"Size": "Int"}
    await operate(
        here,
        "RemoveSearchAttributes",
        RemoveSearchAttributesRequest(namespace="default", search_attributes=["Size"]),
    )
    here.restart()
    await asyncio.sleep(60)
    assert await registered(here) == {}


@served
async def test_search_attributes_of_a_newer_version_are_read_and_not_changed(here: Served) -> None:
    await register(here, Size="Int")
    stored = ObjectKey("configmaps", "default", REGISTRY)
    assert here.world.server.get(stored)["metadata"]["annotations"][STATE_VERSION_ANNOTATION] == str(NEWEST)
    for version in (str(NEWEST + 1), f"{NEWEST}.1", "9" * 5_000):
        newer = {STATE_VERSION_ANNOTATION: version}
        here.world.server.update(stored, lambda obj, newer=newer: obj["metadata"].update(annotations=newer))
        before = here.world.server.get(stored)
        await asyncio.sleep(20)
        with pytest.raises(RpcError, match=f"a newer version of Perdure has written ConfigMap {REGISTRY}"):
            await register(here, Color="Keyword")
        assert await registered(here) == {"Size": "Int"}
        assert here.world.server.get(stored) == before
