"""Worker deployments: which version gets the tasks of a workflow."""

import asyncio

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import (
    EventType,
    TaskQueueKind,
)
from temporalio.api.taskqueue.v1 import StickyExecutionAttributes, TaskQueue

from perdure.frontend.deployments.versions import WORKER_DEPLOYMENTS
from perdure.frontend.errors import RpcError
from rpc.deployments.versioned import (
    AUTO_UPGRADE,
    MINUTE,
    NAME,
    PINNED,
    decide,
    describe,
    options,
    poll,
    register,
    set_current,
    signal,
    start_on,
    statuses,
    version,
    versions_shown,
)
from rpc.served import Served, activity, complete_workflow, served


@served
async def test_workers_that_poll_register_their_version(here: Served) -> None:
    await register(here, "1")
    described = await here.call("DescribeWorkerDeployment", deployment_name=NAME)
    assert statuses(described) == {"1": "INACTIVE"}
    reported = await here.call("DescribeWorkerDeploymentVersion", deployment_version=version("1"))
    assert [each.name for each in reported.version_task_queues] == ["orders", "orders"]
    listed = await here.call("ListWorkerDeployments")
    assert [each.name for each in listed.worker_deployments] == [NAME]
    assert listed.worker_deployments[0].routing_config.current_version == "__unversioned__"


@served
async def test_only_the_first_poll_of_a_task_queue_causes_a_write(here: Served) -> None:
    await register(here, "1")
    stored = "/api/v1/namespaces/default/configmaps/perdure-worker-deployments"
    before = await here.operator.do(here.frontend.client.get(stored))
    await register(here, "1")
    after = await here.operator.do(here.frontend.client.get(stored))
    assert before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"]


@served
async def test_a_new_workflow_starts_on_the_current_version(here: Served) -> None:
    await start_on(here, "2", "1")
    assert not (await poll(here, "1")).task_token
    assert not (await poll(here, "")).task_token
    await decide(here, "2", PINNED)
    completed = [e for e in await here.history() if e.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED]
    attributes = completed[0].workflow_task_completed_event_attributes
    assert attributes.deployment_version == version("2")
    assert attributes.worker_deployment_name == NAME
    assert attributes.versioning_behavior == PINNED
    info = (await describe(here)).workflow_execution_info
    assert info.versioning_info.behavior == PINNED
    assert info.versioning_info.deployment_version == version("2")
    assert info.worker_deployment_name == NAME
    found = await here.call("ListWorkflowExecutions", query="TemporalWorkerDeploymentVersion = 'shop:2'")
    assert [each.execution.workflow_id for each in found.executions] == ["w"]


@served
async def test_without_a_current_version_unversioned_workers_get_new_workflows(here: Served) -> None:
    await register(here, "1")
    await here.start()
    assert not (await poll(here, "1")).task_token
    assert (await poll(here, "")).task_token


@served
async def test_without_a_current_version_a_versioned_client_gets_the_task_of_its_own_workflow(
    here: Served,
) -> None:
    await register(here, "1")
    started = await here.start(request_eager_execution=True, eager_worker_deployment_options=options("1"))
    task = started.eager_workflow_task
    assert task.task_token
    await here.complete(task, deployment_options=options("1"), versioning_behavior=PINNED)
    await signal(here)
    await decide(here, "1", PINNED, complete_workflow())
    assert [each.event_type for each in await here.history()][-1] == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED


@served
async def test_a_versioned_client_gets_no_task_that_goes_to_another_version(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "2")
    started = await here.start(request_eager_execution=True, eager_worker_deployment_options=options("1"))
    assert not started.eager_workflow_task.task_token
    await decide(here, "2", PINNED, complete_workflow())


@served
async def test_a_pinned_workflow_stays_on_its_version_with_its_activities(here: Served) -> None:
    await start_on(here, "1", "2")
    await decide(here, "1", PINNED, activity("a", start_to_close_timeout=MINUTE))
    await set_current(here, "2")
    await signal(here)
    assert not (await poll(here, "2")).task_token
    assert not (await here.call("PollActivityTaskQueue", deployment_options=options("2"))).task_token
    assert (await here.call("PollActivityTaskQueue", deployment_options=options("1"))).task_token
    task = await poll(here, "1")
    started = task.history.events[-1].workflow_task_started_event_attributes
    assert started.target_worker_deployment_version_changed


@served
async def test_an_auto_upgrade_workflow_moves_to_the_new_current_version(here: Served) -> None:
    await start_on(here, "1", "2")
    sticky = StickyExecutionAttributes(
        worker_task_queue=TaskQueue(name="sticky", kind=TaskQueueKind.TASK_QUEUE_KIND_STICKY)
    )
    await decide(here, "1", AUTO_UPGRADE, sticky_attributes=sticky)
    queue = TaskQueue(name="sticky", kind=TaskQueueKind.TASK_QUEUE_KIND_STICKY, normal_name="orders")
    assert not (await poll(here, "1", queue=queue)).task_token
    await set_current(here, "2")
    await signal(here)
    assert not (await poll(here, "1")).task_token
    await decide(here, "2", AUTO_UPGRADE)
    assert (await describe(here)).workflow_execution_info.versioning_info.deployment_version == version("2")


@served
async def test_a_waiting_task_moves_to_the_new_current_version(here: Served) -> None:
    await start_on(here, "1", "2")
    await set_current(here, "2")
    assert not (await poll(here, "1")).task_token
    assert (await poll(here, "2")).task_token


@served
async def test_a_ramping_version_gets_its_share_of_new_workflows(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.call("SetWorkerDeploymentRampingVersion", deployment_name=NAME, build_id="2", percentage=40)
    for number in range(20):
        await here.start(f"w{number}")
    taken: dict[str, list[str]] = {"1": [], "2": []}
    for build, workflows in taken.items():
        while (task := await poll(here, build)).task_token:
            workflows.append(task.workflow_execution.workflow_id)
            await here.complete(task, deployment_options=options(build), versioning_behavior=PINNED)
    assert sorted(taken["1"] + taken["2"]) == sorted(f"w{number}" for number in range(20))
    assert 3 <= len(taken["2"]) <= 15, "about 40 percent; which ones depends only on their IDs"


@served
async def test_describe_shows_the_versions_that_completed_tasks(here: Served) -> None:
    await start_on(here, "1", "2")
    assert await versions_shown(here) == {}
    await decide(here, "1", AUTO_UPGRADE)
    assert await versions_shown(here) == {"TemporalUsedWorkerDeploymentVersions": ["shop:1"]}
    await set_current(here, "2")
    await signal(here)
    await decide(here, "2", PINNED)
    assert await versions_shown(here) == {
        "BuildIds": ["pinned:shop:2"],
        "TemporalUsedWorkerDeploymentVersions": ["shop:1", "shop:2"],
    }


@served
async def test_a_version_is_draining_until_no_workflow_is_pinned_to_it(here: Served) -> None:
    await start_on(here, "1", "2")
    await decide(here, "1", PINNED)
    await set_current(here, "2")
    for _ in range(4):
        await poll(here, "2")  # each takes a minute
    described = await here.call("DescribeWorkerDeployment", deployment_name=NAME)
    assert statuses(described) == {"1": "DRAINING", "2": "CURRENT"}
    with pytest.raises(RpcError, match="cannot be deleted since it is draining"):
        await here.call("DeleteWorkerDeploymentVersion", deployment_version=version("1"))
    await signal(here)
    await decide(here, "1", PINNED, complete_workflow())
    await poll(here, "2")
    described = await here.call("DescribeWorkerDeployment", deployment_name=NAME)
    assert statuses(described) == {"1": "DRAINED", "2": "CURRENT"}
    await here.call("DeleteWorkerDeploymentVersion", deployment_version=version("1"))
    described = await here.call("DescribeWorkerDeployment", deployment_name=NAME)
    assert statuses(described) == {"2": "CURRENT"}


@served
async def test_a_stale_conflict_token_is_rejected(here: Served) -> None:
    await register(here, "1", "2")
    first = await here.call("DescribeWorkerDeployment", deployment_name=NAME)
    await set_current(here, "1", conflict_token=first.conflict_token)
    with pytest.raises(RpcError, match="conflict token mismatch"):
        await set_current(here, "2", conflict_token=first.conflict_token)
    answer = await set_current(here, "2")
    assert answer.previous_deployment_version == version("1")


@served
async def test_only_the_manager_of_a_deployment_can_change_it(here: Served) -> None:
    await register(here, "1")
    await here.call("SetWorkerDeploymentManager", deployment_name=NAME, manager_identity="ci")
    with pytest.raises(RpcError, match="ManagerIdentity 'ci' is set and does not match user identity 'worker'"):
        await set_current(here, "1")
    await set_current(here, "1", identity="ci")


@served
async def test_a_version_without_pollers_can_be_set_only_with_allow_no_pollers(here: Served) -> None:
    await register(here, "1")
    with pytest.raises(RpcError, match="build ID '2' not found in Worker Deployment 'shop'"):
        await set_current(here, "2")
    await set_current(here, "2", allow_no_pollers=True)
    described = await here.call("DescribeWorkerDeployment", deployment_name=NAME)
    assert statuses(described)["2"] == "CURRENT"


@served
async def test_metadata_of_a_version_is_kept(here: Served) -> None:
    await register(here, "1")
    payload = Payload(metadata={"encoding": b"json/plain"}, data=b'"abc123"')
    answer = await here.call(
        "UpdateWorkerDeploymentVersionMetadata", deployment_version=version("1"), upsert_entries={"commit": payload}
    )
    assert answer.metadata.entries["commit"] == payload
    here.restart()
    reported = await here.call("DescribeWorkerDeploymentVersion", deployment_version=version("1"))
    assert reported.worker_deployment_version_info.metadata.entries["commit"] == payload


@served
async def test_routing_survives_an_operator_restart(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.start("pinned")
    await decide(here, "1", PINNED)
    await set_current(here, "2")
    here.restart()
    await here.start("new")
    await signal(here, "pinned")
    assert (await poll(here, "1")).workflow_execution.workflow_id == "pinned"
    assert (await poll(here, "2")).workflow_execution.workflow_id == "new"


@served
async def test_deprecated_versioning_is_rejected_with_the_alternative(here: Served) -> None:
    with pytest.raises(
        RpcError, match="GetWorkerVersioningRules is deprecated and not supported: use worker deployments"
    ):
        await here.call("GetWorkerVersioningRules", task_queue="orders")


@served
async def test_routing_changes_are_recorded_as_events_of_the_config_map(here: Served) -> None:
    await register(here, "1", "2")
    await set_current(here, "1")
    await here.call("SetWorkerDeploymentRampingVersion", deployment_name=NAME, build_id="2", percentage=12.5)
    await set_current(here, "2")
    await set_current(here, "2")
    await asyncio.sleep(5)
    reported = [
        event for event in here.world.server.posted if event["regarding"]["name"] == WORKER_DEPLOYMENTS.config_map
    ]
    notes = [(event["reason"], event["note"]) for event in reported]
    assert notes == [
        ("CurrentVersionChanged", "Worker deployment `shop`: the current version is `1`, was unversioned"),
        ("RampingVersionChanged", "Worker deployment `shop`: 12.5% go to `2`, was: no version is ramping"),
        ("CurrentVersionChanged", "Worker deployment `shop`: the current version is `2`, was `1`"),
        ("RampingVersionChanged", "Worker deployment `shop`: no version is ramping, was: 12.5% go to `2`"),
    ]
