"""Worker deployments, and the versions on which workflows run."""

from typing import Any

from temporalio.api.enums.v1 import RoutingConfigUpdateState

from fidelity.driver import Session, command, encoded, payload, scenario, token
from fidelity.scenarios.activities import schedule
from fidelity.scenarios.starting import COMPLETE
from fidelity.scenarios.workflow_requests import NOBODY

PINNED = "VERSIONING_BEHAVIOR_PINNED"
AUTO_UPGRADE = "VERSIONING_BEHAVIOR_AUTO_UPGRADE"
PINNED_OVERRIDE = "PINNED_OVERRIDE_BEHAVIOR_PINNED"


def options(s: Session, build: str, name: str = "d") -> Any:
    """The deployment options of a worker."""
    versioned = {"worker_versioning_mode": "WORKER_VERSIONING_MODE_VERSIONED"}
    return {"deployment_name": s.named(name), "build_id": build, **versioned}


def version(s: Session, build: str) -> Any:
    return {"deployment_name": s.named("d"), "build_id": build}


def register(s: Session, *builds: str, queue: str = "q", kind: str = "Workflow") -> None:
    """Have workers of versions poll a task queue until the versions are known, without recording that."""
    for build in builds:
        polled = s.begin(
            f"Poll{kind}TaskQueue",
            task_queue={"name": s.named(queue), "kind": "TASK_QUEUE_KIND_NORMAL"},
            deployment_options=options(s, build),
        )
        s.poll(
            lambda response: any(each.name == s.named(queue) for each in response.version_task_queues),
            "DescribeWorkerDeploymentVersion",
            deployment_version=version(s, build),
        )
        polled.cancel()


def change(s: Session, what: str, build: str, note: str = "", **fields: Any) -> Any:
    """Change the routing of the deployment, and wait until task queues follow it."""
    changed = s.call(f"SetWorkerDeployment{what}Version", note, deployment_name=s.named("d"), build_id=build, **fields)
    s.poll(_is_routed, "DescribeWorkerDeployment", deployment_name=s.named("d"))
    return changed


def _is_routed(response: Any) -> bool:
    state = response.worker_deployment_info.routing_config_update_state
    return state != RoutingConfigUpdateState.ROUTING_CONFIG_UPDATE_STATE_IN_PROGRESS


def decide(s: Session, build: str, behavior: str, *commands: Any, note: str = "") -> Any:
    """Take a workflow task as a worker of a version, and complete it with a versioning behavior."""
    task = s.task(note=note, deployment_options=options(s, build))
    s.complete(task, *commands, note=note, deployment_options=options(s, build), versioning_behavior=behavior)
    return task


def override(s: Session, build: str) -> Any:
    return {"pinned": {"behavior": PINNED_OVERRIDE, "version": version(s, build)}}


@scenario
def deployment_routing(s: Session) -> None:
    register(s, "1", "2")
    mine = {"deployment_name": s.named("d")}
    s.call("DescribeWorkerDeployment", "never routed", **mine)
    for build in ("1", "2"):
        s.call("DescribeWorkerDeploymentVersion", build, deployment_version=version(s, build))
    change(s, "Current", "1")
    s.call("DescribeWorkerDeployment", "with a current version", **mine)
    change(s, "Ramping", "2", percentage=20)
    s.call("DescribeWorkerDeployment", "with a ramping version", **mine)
    s.call("DescribeWorkerDeploymentVersion", "ramping", deployment_version=version(s, "2"))
    change(s, "Ramping", "2", note="faster", percentage=50)
    change(s, "Ramping", "", note="to unversioned workers", percentage=10)
    s.call("DescribeWorkerDeployment", "ramping to unversioned workers", **mine)
    change(s, "Ramping", "", note="no more")
    change(s, "Current", "2", note="another")
    s.call("DescribeWorkerDeploymentVersion", "current", deployment_version=version(s, "2"))
    change(s, "Current", "", note="unversioned workers")
    s.call("DescribeWorkerDeployment", "with unversioned workers", **mine)
    # Not recorded: whether the answer names this version as the previous one depends on a retry inside Temporal's server.
    s.begin(
        "SetWorkerDeploymentCurrentVersion", deployment_name=s.named("e"), build_id="1", allow_no_pollers=True
    ).result()
    s.until(
        lambda response: (
            [
                deployment.routing_config.current_deployment_version.build_id
                for deployment in response.worker_deployments
                if deployment.name == s.named("e")
            ]
            == ["1"]
        ),
        "ListWorkerDeployments",
        page_size=1,
    )
    s.call("ListWorkerDeployments", "bad token", next_page_token=encoded(b"page"))


@scenario
def deployment_routing_refused(s: Session) -> None:
    none = {"deployment_name": s.named("none"), "build_id": "1"}
    for what in ("Current", "Ramping"):
        rpc = f"SetWorkerDeployment{what}Version"
        s.call(rpc, "no deployment", **none)
        s.call(rpc, "no name", build_id="1")
    s.call("DescribeWorkerDeployment", "no deployment", deployment_name=s.named("none"))
    s.call("DescribeWorkerDeployment", "no name")
    s.call("DescribeWorkerDeploymentVersion", "no deployment", deployment_version=none)
    s.call("DescribeWorkerDeploymentVersion", "no build ID", deployment_version={"deployment_name": s.named("none")})
    s.call("DescribeWorkerDeploymentVersion", "no version")
    register(s, "1", "2")
    change(s, "Current", "1")
    mine = {"deployment_name": s.named("d")}
    for what in ("Current", "Ramping"):
        rpc = f"SetWorkerDeployment{what}Version"
        s.call(rpc, "no such version", **mine, build_id="none")
        s.call(rpc, "old conflict token", **mine, build_id="2", conflict_token=encoded(b"old"))
    s.call("SetWorkerDeploymentRampingVersion", "too much", **mine, build_id="2", percentage=101)
    s.call("SetWorkerDeploymentRampingVersion", "already current", **mine, build_id="1", percentage=10)
    s.call("SetWorkerDeploymentCurrentVersion", "again", **mine, build_id="1")
    register(s, "1", queue="other")
    s.start("other", task_queue={"name": s.named("other")})
    s.call("SetWorkerDeploymentCurrentVersion", "no task queue", **mine, build_id="2")
    s.call("SetWorkerDeploymentCurrentVersion", **mine, build_id="2", ignore_missing_task_queues=True)
    s.close("other")


@scenario
def deployment_without_pollers(s: Session) -> None:
    mine = {"deployment_name": s.named("d"), "build_id": "1", "allow_no_pollers": True}
    s.call("SetWorkerDeploymentCurrentVersion", **mine)
    s.call("SetWorkerDeploymentRampingVersion", **mine | {"build_id": "2"}, percentage=30)
    s.call("DescribeWorkerDeployment", deployment_name=s.named("d"))
    s.call("DescribeWorkerDeploymentVersion", deployment_version=version(s, "1"), report_task_queue_stats=True)


@scenario
def deployment_managers(s: Session) -> None:
    register(s, "1")
    mine = {"deployment_name": s.named("d")}
    s.call("SetWorkerDeploymentManager", "no deployment", deployment_name=s.named("none"), manager_identity="m")
    s.call("SetWorkerDeploymentManager", **mine, manager_identity="the manager")
    s.call("DescribeWorkerDeployment", **mine)
    s.call("SetWorkerDeploymentCurrentVersion", "not the manager", **mine, build_id="1")
    s.call("SetWorkerDeploymentManager", "oneself", **mine, self=True)
    old = {"conflict_token": encoded(b"old")}
    s.call("SetWorkerDeploymentManager", "again", **mine, self=True, **old)
    s.call("SetWorkerDeploymentManager", "old conflict token", **mine, manager_identity="another", **old)
    s.call("SetWorkerDeploymentCurrentVersion", "the manager", **mine, build_id="1")
    s.call("SetWorkerDeploymentManager", "nobody", **mine, manager_identity="")


@scenario
def deployment_metadata(s: Session) -> None:
    register(s, "1")
    one = {"deployment_version": version(s, "1")}
    s.call("UpdateWorkerDeploymentVersionMetadata", **one, upsert_entries={"a": payload(1), "b": payload(2)})
    s.call("UpdateWorkerDeploymentVersionMetadata", "less", **one, remove_entries=["a", "none"])
    s.call("DescribeWorkerDeploymentVersion", **one)
    none = {"deployment_version": version(s, "none")}
    s.call("UpdateWorkerDeploymentVersionMetadata", "no such version", **none, upsert_entries={"a": payload(1)})


@scenario
def deployments_deleted(s: Session) -> None:
    one, mine = {"deployment_version": version(s, "1")}, {"deployment_name": s.named("d")}
    ramping = "SetWorkerDeploymentRampingVersion"
    s.call(ramping, **mine, build_id="1", percentage=10, allow_no_pollers=True)
    s.call("DeleteWorkerDeployment", "with versions", **mine)
    s.call("DeleteWorkerDeploymentVersion", "ramping", **one)
    s.call(ramping, "no more", **mine)
    s.call("DeleteWorkerDeploymentVersion", "draining", **one)
    s.call("DeleteWorkerDeploymentVersion", **one, skip_drainage=True)
    s.call("DeleteWorkerDeploymentVersion", "again", **one)
    none = version(s, "1") | {"deployment_name": s.named("none")}
    s.call("DeleteWorkerDeploymentVersion", "no deployment", deployment_version=none)
    s.call("DeleteWorkerDeployment", **mine)
    s.call("DeleteWorkerDeployment", "no name")


@scenario
def deployment_version_with_pollers(s: Session) -> None:
    register(s, "1")
    s.call("DeleteWorkerDeploymentVersion", deployment_version=version(s, "1"), skip_drainage=True)


@scenario
def pinned_workflow(s: Session) -> None:
    register(s, "1", "2")
    register(s, "1", kind="Activity")
    change(s, "Current", "1")
    s.start()
    decide(s, "1", PINNED, schedule(s))
    s.describe(note="pinned")
    task = s.activity_task(deployment_options=options(s, "1"))
    change(s, "Current", "2")
    done = {"deployment_options": options(s, "1")}
    s.call("RespondActivityTaskCompleted", task_token=token(task), **done)
    decide(s, "1", PINNED, COMPLETE, note="still on its version")
    s.describe()
    s.history()


@scenario
def upgraded_workflow(s: Session) -> None:
    register(s, "1", "2")
    change(s, "Current", "1")
    s.start()
    decide(s, "1", AUTO_UPGRADE)
    s.describe(note="before")
    change(s, "Current", "2")
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal")
    task = s.task(note="of the other version", deployment_options=options(s, "2"))
    s.describe(note="in transition")
    s.complete(task, COMPLETE, deployment_options=options(s, "2"), versioning_behavior=AUTO_UPGRADE)
    s.describe()
    s.history()


@scenario
def versioning_overrides(s: Session) -> None:
    register(s, "1", "2")
    change(s, "Current", "1")
    s.start(versioning_override=override(s, "2"))
    s.describe(note="with an override")
    decide(s, "2", AUTO_UPGRADE, note="as the override says")
    update = {"workflow_execution": s.execution(), "update_mask": "versioningOverride"}
    changed = {"workflow_execution_options": {"versioning_override": {"auto_upgrade": True}}}
    s.call("UpdateWorkflowExecutionOptions", "auto-upgrade", **update, **changed)
    s.call("UpdateWorkflowExecutionOptions", "again", **update, **changed)
    s.describe(note="with another override")
    pinned = {"workflow_execution_options": {"versioning_override": override(s, "2")}}
    s.call("UpdateWorkflowExecutionOptions", "pinned", **update, **pinned)
    s.call("UpdateWorkflowExecutionOptions", "none", **update)
    s.call("UpdateWorkflowExecutionOptions", "no field", workflow_execution=s.execution(), **changed)
    refused = {
        "no such version": override(s, "none"),
        "no version": {"pinned": {"behavior": PINNED_OVERRIDE}},
        "no behavior": {"pinned": {"version": version(s, "2")}},
        "nothing": {},
    }
    for note, said in refused.items():
        chosen = {"workflow_execution_options": {"versioning_override": said}}
        s.call("UpdateWorkflowExecutionOptions", note, **update, **chosen)
        s.start("refused", note=note, versioning_override=said)
        s.close("refused")
    s.call("UpdateWorkflowExecutionOptions", "no workflow", **update | {"workflow_execution": NOBODY}, **changed)
    s.call("UpdateWorkflowExecutionOptions", "another field", **update | {"update_mask": "unheard"}, **changed)
    s.history()
    s.close()
    s.call("UpdateWorkflowExecutionOptions", "closed", **update, **changed)


@scenario
def versions_inherited(s: Session) -> None:
    register(s, "1", "2")
    register(s, "1", "2", queue="c")
    change(s, "Current", "1")
    s.start()
    child = command(
        "START_CHILD_WORKFLOW_EXECUTION",
        workflow_id=s.named("child"),
        workflow_type={"name": "Child"},
        task_queue={"name": s.named("c")},
        parent_close_policy="PARENT_CLOSE_POLICY_ABANDON",
    )
    decide(s, "1", PINNED, child)
    change(s, "Current", "2")
    done = {"deployment_options": options(s, "1"), "versioning_behavior": PINNED}
    s.complete(s.task("c", "of the child", deployment_options=options(s, "1")), **done)
    s.describe("child")
    again = {"workflow_type": {"name": "Type"}}
    decide(s, "1", PINNED, command("CONTINUE_AS_NEW_WORKFLOW_EXECUTION", **again), note="pinned")
    upgrade = {"initial_versioning_behavior": "CONTINUE_AS_NEW_VERSIONING_BEHAVIOR_AUTO_UPGRADE"}
    decide(s, "1", PINNED, command("CONTINUE_AS_NEW_WORKFLOW_EXECUTION", **again, **upgrade), note="continued")
    decide(s, "2", PINNED, note="upgraded")
    s.history()
    s.describe()
    s.close()
    s.close("child")


@scenario
def versioned_workers_refused(s: Session) -> None:
    queue = {"task_queue": {"name": s.named("q"), "kind": "TASK_QUEUE_KIND_NORMAL"}}
    for rpc in ("PollWorkflowTaskQueue", "PollActivityTaskQueue", "PollNexusTaskQueue"):
        s.call(rpc, "no build ID", **queue, deployment_options=options(s, ""))
        s.call(rpc, "no deployment", **queue, deployment_options=options(s, "1") | {"deployment_name": ""})
        s.call(rpc, "odd name", **queue, deployment_options=options(s, "1") | {"deployment_name": "a.b"})
    s.start()
    task = s.task()
    s.complete(task, note="a behavior without a version", versioning_behavior=PINNED)
    s.close()


@scenario
def one_time_override(s: Session) -> None:
    register(s, "1", "2")
    change(s, "Current", "1")
    s.start(versioning_override={"one_time": {"target_deployment_version": version(s, "2")}})
    s.describe(note="with an override")
    decide(s, "2", AUTO_UPGRADE, note="as the override says")
    s.describe(note="the override is used up")
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal")
    decide(s, "1", AUTO_UPGRADE, note="of the current version")
    update = {"workflow_execution": s.execution(), "update_mask": "versioningOverride"}
    for note, target in {"the other": version(s, "2"), "no such version": version(s, "none"), "no version": {}}.items():
        once = {
            "workflow_execution_options": {"versioning_override": {"one_time": {"target_deployment_version": target}}}
        }
        s.call("UpdateWorkflowExecutionOptions", note, **update, **once)
    s.describe(note="with another override")
    s.history()
    s.close()


@scenario
def ramp_without_task_queue(s: Session) -> None:
    mine = {"deployment_name": s.named("d")}
    register(s, "1", "2")
    register(s, "1", queue="other")
    change(s, "Current", "1")
    s.start("other", task_queue={"name": s.named("other")})
    s.call("SetWorkerDeploymentRampingVersion", "no task queue", **mine, build_id="2", percentage=10)
    ignoring = {"ignore_missing_task_queues": True}
    s.call("SetWorkerDeploymentRampingVersion", **mine, build_id="2", percentage=10, **ignoring)
    s.close("other")


@scenario
def unversioned_worker_of_a_deployment(s: Session) -> None:
    unversioned = options(s, "1") | {"worker_versioning_mode": "WORKER_VERSIONING_MODE_UNVERSIONED"}
    s.start()
    task = s.task(deployment_options=unversioned)
    failed = {"cause": "WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE"}
    s.call("RespondWorkflowTaskFailed", task_token=token(task), **failed, deployment_options=unversioned)
    s.complete(s.task(deployment_options=unversioned), schedule(s), deployment_options=unversioned)
    task = s.activity_task(deployment_options=unversioned)
    failure = {"message": "wrong", "application_failure_info": {"type": "Wrong", "non_retryable": True}}
    s.call("RespondActivityTaskFailed", task_token=token(task), failure=failure, deployment_options=unversioned)
    canceled = command("REQUEST_CANCEL_ACTIVITY_TASK", scheduled_event_id=13)
    s.complete(s.task(), schedule(s, "b"))
    task = s.activity_task()
    s.call("SignalWorkflowExecution", workflow_execution=s.execution(), signal_name="signal")
    s.complete(s.task(), canceled)
    s.call("RespondActivityTaskCanceled", task_token=token(task), deployment_options=unversioned)
    s.decide(COMPLETE)
    s.history()
    s.describe()
