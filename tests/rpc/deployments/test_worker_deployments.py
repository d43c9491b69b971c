"""WorkerDeployments in memory and in virtual time: the operator starts and stops pods, and workers without an SDK poll."""

import asyncio
from collections.abc import Callable
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.taskqueue.v1 import TaskQueue

from perdure.api.labels import WORKER_DEPLOYMENT_LABEL
from rpc.deployments.versioned import MINUTE, NAME, PINNED, decide, describe, options, poll, set_current, signal
from rpc.served import QUEUE, Served, activity, complete_workflow, served

WORKER_DEPLOYMENTS = "/apis/perdure.dev/v1alpha1/namespaces/default/workerdeployments"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


class Cluster:
    """The objects of a WorkerDeployment on the API server, and its pods, which are ready as soon as they should exist."""

    def __init__(self, here: Served) -> None:
        self.here = here

    async def request(self, call: Callable[[Any], Any]) -> Any:
        return await self.here.operator.do(call(self.here.frontend.client))

    async def apply(self, build: str, **fields: Any) -> None:
        """Create the WorkerDeployment, or change it to another version."""
        template = {"spec": {"containers": [{"name": "worker", "image": f"worker:{build}"}]}}
        spec = {"taskQueues": [QUEUE], "buildId": build, "podTemplate": template, "idleTimeout": "60s", **fields}
        known = await self.request(lambda client: client.lists.all(WORKER_DEPLOYMENTS))
        if known:
            change = {"spec": spec}
            await self.request(lambda client: client.merge(f"{WORKER_DEPLOYMENTS}/{NAME}", change))
            return
        body = {"apiVersion": "perdure.dev/v1alpha1", "kind": "WorkerDeployment", "spec": spec}
        body["metadata"] = {"name": NAME, "namespace": "default"}
        await self.request(lambda client: client.create(WORKER_DEPLOYMENTS, body))

    async def deployments(self) -> dict[str, Any]:
        found = await self.request(lambda client: client.lists.all(DEPLOYMENTS))
        return {each["metadata"]["labels"]["perdure.dev/worker-build-id"]: each for each in found}

    async def pods(self) -> dict[str, int]:
        """The number of pods of each version."""
        return {build: each["spec"]["replicas"] for build, each in (await self.deployments()).items()}

    async def status(self) -> Any:
        found = await self.request(lambda client: client.get(f"{WORKER_DEPLOYMENTS}/{NAME}"))
        return found.get("status") or {}

    async def condition(self, kind: str) -> tuple[str, str]:
        for each in (await self.status()).get("conditions") or ():
            if each["type"] == kind:
                return each["status"], each["reason"]
        return "", ""

    async def phases(self) -> dict[str, str]:
        return {each["buildId"]: each["phase"] for each in (await self.status()).get("versions") or ()}

    async def make_ready(self) -> None:
        """Make the pods of all versions ready, as the controllers of Kubernetes do."""
        for each in (await self.deployments()).values():
            at = f"{DEPLOYMENTS}/{each['metadata']['name']}"
            found = await self.request(lambda client, at=at: client.get(at))
            status = {**(found.get("status") or {}), "readyReplicas": found["spec"]["replicas"]}
            await self.request(lambda client, at=at, found=found, status=status: client.set_status(at, found, status))


async def settle(seconds: float = 15) -> None:
    await asyncio.sleep(seconds)


async def register(here: Served, build: str) -> None:
    """Let the worker of a version poll both kinds of tasks once, without waiting for a task."""
    for rpc in ("PollWorkflowTaskQueue", "PollActivityTaskQueue"):
        queue = TaskQueue(name=QUEUE)
        polling = asyncio.ensure_future(
            poll(here, build) if rpc.startswith("PollW") else _poll_activity(here, build, queue)
        )
        await settle(1)
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)


async def _poll_activity(here: Served, build: str, queue: TaskQueue) -> Any:
    return await here.call("PollActivityTaskQueue", deployment_options=options(build), queue=queue)


async def idle(cluster: Cluster) -> None:
    """Wait until the version has no pods any more."""
    await settle(80)
    assert await cluster.pods() == {"1": 0}
    await cluster.make_ready()


async def rolled_out(here: Served, cluster: Cluster, build: str, **fields: Any) -> None:
    """Apply a version, and let its worker poll, until it is current."""
    await cluster.apply(build, **fields)
    await settle()
    assert (await cluster.pods())[build] == 1, "a new version starts one pod"
    await cluster.make_ready()
    await register(here, build)
    await settle()
    assert await cluster.condition("RolledOut") == ("True", "RolledOut")


@served
async def test_a_version_becomes_current_once_its_workers_poll_and_idles_at_zero(here: Served) -> None:
    cluster = Cluster(here)
    await cluster.apply("1")
    await settle()
    (found,) = (await cluster.deployments()).values()
    (container,) = found["spec"]["template"]["spec"]["containers"]
    assert container["env"] == [
        {"name": "TEMPORAL_DEPLOYMENT_NAME", "value": NAME},
        {"name": "TEMPORAL_WORKER_BUILD_ID", "value": "1"},
    ]
    assert found["metadata"]["labels"][WORKER_DEPLOYMENT_LABEL] == NAME
    assert found["metadata"]["ownerReferences"][0]["kind"] == "WorkerDeployment"
    assert await cluster.condition("Ready") == ("False", "WorkersStarting")
    await cluster.make_ready()
    await register(here, "1")
    await settle()
    assert await cluster.condition("Ready") == ("True", "Serving")
    assert (await cluster.status())["currentBuildId"] == "1"
    await settle(80)
    assert await cluster.pods() == {"1": 0}
    assert await cluster.condition("Ready") == ("True", "Idle")


@served
async def test_a_waiting_task_starts_a_pod_and_is_not_lost(here: Served) -> None:
    cluster = Cluster(here)
    await rolled_out(here, cluster, "1")
    await idle(cluster)
    await here.start()
    await settle(1)
    assert await cluster.pods() == {"1": 1}
    await settle(40)
    assert await cluster.pods() == {"1": 1}, "the task still waits"
    await cluster.make_ready()
    task = await decide(here, "1", PINNED, complete_workflow())
    assert task.attempt == 1
    await settle(90)
    assert await cluster.pods() == {"1": 0}


@served
async def test_a_run_that_starts_before_the_first_version_is_decided_by_it(here: Served) -> None:
    await here.start()
    cluster = Cluster(here)
    await rolled_out(here, cluster, "1")
    await decide(here, "1", PINNED, complete_workflow())


@served
async def test_pods_stay_while_an_activity_runs(here: Served) -> None:
    cluster = Cluster(here)
    await rolled_out(here, cluster, "1", idleTimeout="30s")
    await here.start()
    await decide(here, "1", PINNED, activity("long", start_to_close_timeout=60 * MINUTE))
    taken = await _poll_activity(here, "1", TaskQueue(name=QUEUE))
    assert taken.task_token
    await settle(600)
    assert await cluster.pods() == {"1": 1}
    await here.call("RespondActivityTaskCompleted", task_token=taken.task_token)
    await decide(here, "1", PINNED, complete_workflow())
    await settle(60)
    assert await cluster.pods() == {"1": 0}


@served
async def test_an_open_run_ends_on_its_version_which_is_removed_afterwards(here: Served) -> None:
    cluster = Cluster(here)
    await rolled_out(here, cluster, "1", versioning={"sunsetDelay": "2m"})
    await here.start()
    await decide(here, "1", PINNED)
    await rolled_out(here, cluster, "2", versioning={"sunsetDelay": "2m"})
    await settle(600)
    assert await cluster.phases() == {"1": "Draining", "2": "Current"}
    assert await cluster.pods() == {"1": 0, "2": 0}
    await here.start("new")
    await settle(2)
    assert await cluster.pods() == {"1": 0, "2": 1}
    await cluster.make_ready()
    await decide(here, "2", PINNED, complete_workflow())
    await signal(here)
    await settle(2)
    assert (await cluster.pods())["1"] == 1, "the old code is started for the run that is pinned to it"
    await cluster.make_ready()
    await decide(here, "1", PINNED, complete_workflow())
    await settle(90)
    assert await cluster.phases() == {"1": "Drained", "2": "Current"}
    await settle(300)
    assert await cluster.phases() == {"2": "Current"}
    await settle(120)
    described = await here.call("DescribeWorkerDeployment", deployment_name=NAME)
    builds = [each.deployment_version.build_id for each in described.worker_deployment_info.version_summaries]
    assert builds == ["2"]


@served
async def test_a_run_without_a_worker_says_what_its_worker_deployment_reports(here: Served) -> None:
    cluster = Cluster(here)
    await rolled_out(here, cluster, "1")
    await idle(cluster)
    await here.start(workflow_task_timeout=MINUTE / 6)
    await settle(60)
    run = await here.operator.do(
        here.frontend.client.lists.all("/apis/perdure.dev/v1alpha1/namespaces/default/workflowruns")
    )
    (condition,) = [each for each in run[0]["status"]["conditions"] if each["type"] == "Succeeded"]
    assert condition["reason"] == "NoWorker"
    assert f"WorkerDeployment `{NAME}`: Version `1` gets new runs; 0 of 1 pods are ready" in condition["message"]


@served
async def test_a_rollout_takes_its_ramp_steps(here: Served) -> None:
    cluster = Cluster(here)
    await rolled_out(here, cluster, "1")
    steps = {"steps": [{"percentage": 10, "pause": "5m"}, {"percentage": 50, "pause": "5m"}]}
    await cluster.apply("2", versioning=steps)
    await settle()
    await register(here, "2")
    await settle()
    assert await cluster.condition("RolledOut") == ("False", "Ramping")
    assert (await cluster.status())["rampingPercentage"] == 10
    await settle(300)
    assert (await cluster.status())["rampingPercentage"] == 50
    await settle(300)
    assert await cluster.condition("RolledOut") == ("True", "RolledOut")
    assert (await cluster.status())["currentBuildId"] == "2"


@served
async def test_another_client_that_manages_the_routing_keeps_it(here: Served) -> None:
    cluster = Cluster(here)
    await rolled_out(here, cluster, "1")
    await here.call("SetWorkerDeploymentManager", deployment_name=NAME, manager_identity="pipeline")
    await cluster.apply("2")
    await settle()
    await register(here, "2")
    await settle()
    assert await cluster.condition("RolledOut") == ("False", "RoutingRefused")
    assert (await cluster.condition("Ready"))[0] == "True"
    await set_current(here, "2", identity="pipeline")
    await settle(70)
    assert await cluster.condition("RolledOut") == ("True", "RolledOut")


@served
async def test_a_restarted_operator_continues_where_the_last_one_stopped(here: Served) -> None:
    cluster = Cluster(here)
    await rolled_out(here, cluster, "1")
    await idle(cluster)
    await here.operator.kill()
    here.restart()
    await settle(30)
    await here.start()
    await settle(3)
    assert await cluster.pods() == {"1": 1}
    await decide(here, "1", PINNED, complete_workflow())
    state = (await describe(here)).workflow_execution_info
    assert state.execution == WorkflowExecution(workflow_id="w", run_id=state.execution.run_id)
