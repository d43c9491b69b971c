"""Calls for what a newer operator has written: SDKs retry them, and they change nothing."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import grpc
import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.query.v1 import WorkflowQuery
from temporalio.api.schedule.v1 import Schedule, ScheduleAction, ScheduleSpec
from temporalio.api.update.v1 import Input, Meta, Request

from perdure.api.labels import CLIENT_ANNOTATION
from perdure.frontend.errors import RpcError
from perdure.runtime import status_encoding
from perdure.runtime.commits import OF_RUNS, committed
from perdure.simulation.cluster.store import Object, ObjectKey
from rpc.served import Served, activity, complete_workflow, names, served
from support.faulty.newer import HOLD_BACK

ORDER = WorkflowExecution(workflow_id="w")
UPDATE = Request(meta=Meta(update_id="u"), input=Input(name="change"))
CALLS: dict[str, dict[str, Any]] = {
    "DescribeWorkflowExecution": {"execution": ORDER},
    "GetWorkflowExecutionHistory": {"execution": ORDER},
    "SignalWorkflowExecution": {"workflow_execution": ORDER, "signal_name": "go"},
    "RequestCancelWorkflowExecution": {"workflow_execution": ORDER},
    "TerminateWorkflowExecution": {"workflow_execution": ORDER},
    "QueryWorkflow": {"execution": ORDER, "query": WorkflowQuery(query_type="state")},
    "UpdateWorkflowExecution": {"workflow_execution": ORDER, "request": UPDATE},
}


def rewritten(change: Callable[[Object], Any]) -> Callable[[Object], None]:
    """A change of the state of a run, with a correct digest."""

    def write(run: Object) -> None:
        status = status_encoding.decode(run)["status"]
        commit = status.pop("commit")
        change(status["state"])
        run["status"] = status_encoding.encode(committed(status, OF_RUNS, commit["uid"], commit["number"]))

    return write


@served
async def test_calls_for_a_workflow_of_a_newer_version_are_unavailable_and_change_nothing(here: Served) -> None:
    run_id = (await here.start()).run_id
    hour = timedelta(hours=1)
    await here.decide(activity("a", schedule_to_close_timeout=hour, start_to_close_timeout=hour))
    name = next(iter(here.world.runs()))
    await here.operator.kill()
    here.world.edit("workflowruns", name, rewritten(lambda state: state["code"].update(pinned=["1"])))
    newer = here.world.run(name)["status"]
    here.restart()
    assert not (await here.call("PollActivityTaskQueue")).task_token, "its activity is not handed out"
    for rpc, fields in CALLS.items():
        with pytest.raises(RpcError, match="A newer version of Perdure has written the object") as refused:
            await here.call(rpc, **fields)
        assert refused.value.code is grpc.StatusCode.UNAVAILABLE, rpc
    found = here.world.run(name)["status"]
    assert {**found, "conditions": None} == {**newer, "conditions": None}
    assert [each["reason"] for each in found["conditions"]] == ["NewerState", "NewerState"]
    here.world.edit("workflowruns", name, rewritten(lambda state: state["code"].pop("pinned")))
    await asyncio.sleep(5)
    task = await here.call("PollActivityTaskQueue")
    await here.call("RespondActivityTaskCompleted", task_token=task.task_token)
    await here.decide(complete_workflow())
    assert names(await here.history(run_id=run_id))[-1] == "WorkflowExecutionCompleted"
    assert [each["type"] for each in here.world.run(name)["status"]["conditions"]] == ["Succeeded"]


@served
async def test_an_update_of_a_schedule_with_options_of_a_newer_version_is_unavailable(here: Served) -> None:
    action = {
        "start_workflow": {"workflow_id": "report", "workflow_type": {"name": "Report"}, "task_queue": {"name": "q"}}
    }
    schedule = Schedule(action=ScheduleAction(**action), spec=ScheduleSpec(cron_string=["0 0 1 1 *"]))
    await here.call("CreateSchedule", schedule_id="yearly", schedule=schedule, request_id="r")
    key = ObjectKey("schedules", "default", "yearly")
    options = json.dumps(
        {**json.loads(here.world.server.get(key)["metadata"]["annotations"][CLIENT_ANNOTATION]), "x": 1}
    )
    here.world.edit(
        "schedules", "yearly", lambda obj: obj["metadata"]["annotations"].update({CLIENT_ANNOTATION: options})
    )
    with pytest.raises(RpcError, match="A newer version of Perdure has written the object") as refused:
        await here.call("UpdateSchedule", schedule_id="yearly", schedule=schedule, request_id="r")
    assert refused.value.code is grpc.StatusCode.UNAVAILABLE
    assert here.world.server.get(key)["metadata"]["annotations"][CLIENT_ANNOTATION] == options
    await here.call("DescribeSchedule", schedule_id="yearly")


@served
async def test_a_start_passes_a_failure_on_once_all_operators_can_read_it(here: Served) -> None:
    await here.operator.kill()
    here.world.operators.remove(here.operator)
    here.world.share_versions()
    here.world.create("WorkflowRun", "earlier", {"inline": {"steps": [{"name": "nap", "sleep": {"duration": "1s"}}]}})
    here.restart()
    await asyncio.sleep(5)
    earlier = Failure(message="out of beans", application_failure_info=ApplicationFailureInfo(type="Beans"))
    with pytest.raises(
        RpcError, match="requires state version 3, and during the upgrade, operators write 1"
    ) as refused:
        await here.start(continued_failure=earlier)
    assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
    await asyncio.sleep(HOLD_BACK + 10)
    await here.start(continued_failure=earlier)
    started = (await here.task()).history.events[0].workflow_execution_started_event_attributes
    assert started.continued_failure == earlier
