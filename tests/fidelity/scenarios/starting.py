"""StartWorkflowExecution and SignalWithStartWorkflowExecution."""

from fidelity.driver import Session, command, payload, payloads, scenario

COMPLETE = command("COMPLETE_WORKFLOW_EXECUTION")
FAIL = command("FAIL_WORKFLOW_EXECUTION", failure={"message": "wrong", "application_failure_info": {"type": "Wrong"}})
NO_RUN = "00000000-0000-4000-8000-000000000000"
EVERY_OPTION = {
    "input": payloads("input", 1),
    "workflow_execution_timeout": "3600s",
    "workflow_run_timeout": "1800s",
    "workflow_task_timeout": "20s",
    "workflow_id_reuse_policy": "WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE",
    "retry_policy": {"maximum_attempts": 3},
    "memo": {"fields": {"note": payload("said")}},
    "search_attributes": {"indexed_fields": {"CustomKeywordField": payload("key"), "CustomIntField": payload(5)}},
    "header": {"fields": {"trace": payload("id")}},
    "user_metadata": {"summary": payload("in short"), "details": payload("at length")},
    "priority": {"priority_key": 2, "fairness_key": "fair", "fairness_weight": 1.5},
}


@scenario
def start_with_defaults(s: Session) -> None:
    s.start()
    s.describe(note="before its first task is taken")
    s.history()
    task = s.task()
    s.describe(note="while a worker decides")
    s.complete(task)
    s.describe(note="nothing to decide")
    s.close()


@scenario
def start_with_every_option(s: Session) -> None:
    s.start(**EVERY_OPTION)
    s.describe()
    s.task()
    s.history()
    s.close()


@scenario
def start_after_a_delay(s: Session) -> None:
    s.start(workflow_start_delay="3600s")
    s.describe()
    s.history()
    s.close()


@scenario
def start_eagerly(s: Session) -> None:
    s.start(request_eager_execution=True)
    s.close()


@scenario
def start_refused(s: Session) -> None:
    long = "x" * 1001
    refused = {
        "no workflow ID": {"workflow_id": ""},
        "no type": {"workflow_type": {}},
        "no task queue": {"task_queue": {}},
        "long workflow ID": {"workflow_id": long},
        "long type": {"workflow_type": {"name": long}},
        "long task queue": {"task_queue": {"name": long}},
        "long request ID": {"request_id": long},
        "negative execution timeout": {"workflow_execution_timeout": "-1s"},
        "negative run timeout": {"workflow_run_timeout": "-1s"},
        "negative task timeout": {"workflow_task_timeout": "-1s"},
        "negative delay": {"workflow_start_delay": "-1s"},
        "delay and cron": {"workflow_start_delay": "1s", "cron_schedule": "@daily"},
        "bad cron": {"cron_schedule": "never"},
        "bad coefficient": {"retry_policy": {"backoff_coefficient": 0.5}},
        "negative attempts": {"retry_policy": {"maximum_attempts": -1}},
        "negative interval": {"retry_policy": {"initial_interval": "-1s"}},
        "short maximum interval": {"retry_policy": {"initial_interval": "10s", "maximum_interval": "1s"}},
        "unknown search attribute": {"search_attributes": {"indexed_fields": {"Unheard": payload("x")}}},
        "value of the wrong type": {"search_attributes": {"indexed_fields": {"CustomIntField": payload("x")}}},
        "system search attribute": {"search_attributes": {"indexed_fields": {"WorkflowId": payload("x")}}},
        "policies that contradict": {
            "workflow_id_reuse_policy": "WORKFLOW_ID_REUSE_POLICY_TERMINATE_IF_RUNNING",
            "workflow_id_conflict_policy": "WORKFLOW_ID_CONFLICT_POLICY_FAIL",
        },
        "rejecting and terminating": {
            "workflow_id_reuse_policy": "WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE",
            "workflow_id_conflict_policy": "WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING",
        },
        "on_conflict_options without USE_EXISTING": {"on_conflict_options": {"attach_request_id": True}},
        "unknown namespace": {"namespace": "nowhere"},
        "no namespace": {"namespace": ""},
        "reserved task queue": {"task_queue": {"name": "/_sys/q"}},
        "priority out of range": {"priority": {"priority_key": -1}},
    }
    for note, options in refused.items():
        s.start(note=note, **options)
        s.close()


@scenario
def start_while_running(s: Session) -> None:
    request = s.started()
    s.call("StartWorkflowExecution", **request)
    s.call("StartWorkflowExecution", "sent again", **request)
    s.start(note="no policy")
    s.start(note="fail", workflow_id_conflict_policy="WORKFLOW_ID_CONFLICT_POLICY_FAIL")
    s.start(note="use existing", workflow_id_conflict_policy="WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING")
    s.start(
        note="attach the request",
        workflow_id_conflict_policy="WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING",
        on_conflict_options={"attach_request_id": True},
    )
    s.start(note="reject", workflow_id_reuse_policy="WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE")
    s.history()
    s.describe()
    first = s.start(note="terminate", workflow_id_conflict_policy="WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING")
    s.describe(note="the one that terminated the other", run_id=first.run_id)
    s.start(note="terminate if running", workflow_id_reuse_policy="WORKFLOW_ID_REUSE_POLICY_TERMINATE_IF_RUNNING")
    s.history(note="terminated by a start", run_id=first.run_id)
    s.close()


@scenario
def start_after_close(s: Session) -> None:
    s.start(workflow_id_reuse_policy="WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE")
    s.decide(COMPLETE)
    s.start(note="reject", workflow_id_reuse_policy="WORKFLOW_ID_REUSE_POLICY_REJECT_DUPLICATE")
    s.start(
        note="completed, failed only", workflow_id_reuse_policy="WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY"
    )
    s.start("f")
    s.decide(FAIL)
    s.until(
        lambda response: response.started,
        "StartWorkflowExecution",
        "failed, failed only",
        **s.started("f", workflow_id_reuse_policy="WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE_FAILED_ONLY"),
    )
    s.close("f")


@scenario
def signal_with_start(s: Session) -> None:
    signal = {"signal_name": "signal", "signal_input": payloads("told"), "control": ""}
    s.call("SignalWithStartWorkflowExecution", **s.started(**EVERY_OPTION | signal))
    s.call("SignalWithStartWorkflowExecution", "it runs", **s.started(**signal))
    s.history()
    s.describe()
    for policy in ("FAIL", "USE_EXISTING", "TERMINATE_EXISTING"):
        chosen = {"workflow_id_conflict_policy": f"WORKFLOW_ID_CONFLICT_POLICY_{policy}"}
        s.call("SignalWithStartWorkflowExecution", policy, **s.started(**signal, **chosen))
    s.call("SignalWithStartWorkflowExecution", "no signal name", **s.started())
    s.call("SignalWithStartWorkflowExecution", "no workflow ID", **s.started(**signal) | {"workflow_id": ""})
    s.close()


@scenario
def signal_with_start_after_a_delay(s: Session) -> None:
    s.call("SignalWithStartWorkflowExecution", **s.started(signal_name="signal", workflow_start_delay="3600s"))
    s.history()
    s.close()


@scenario
def attached_starts(s: Session) -> None:
    link = {"workflow_event": {"namespace": s.server.namespace, **s.execution("other", NO_RUN)}}
    link["workflow_event"] |= {"event_ref": {"event_id": 5, "event_type": "EVENT_TYPE_WORKFLOW_TASK_COMPLETED"}}
    s.start()
    s.decide()
    existing = {"workflow_id_conflict_policy": "WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING"}
    attached = {"attach_request_id": True, "attach_links": True}
    request = s.started(**existing, links=[link], on_conflict_options=attached)
    s.call("StartWorkflowExecution", "with a link", **request)
    s.call("StartWorkflowExecution", "sent again", **request)
    s.describe()
    s.history()
    s.close()


@scenario
def signal_with_start_options(s: Session) -> None:
    signal = {"signal_name": "signal"}
    rpc = "SignalWithStartWorkflowExecution"
    s.call(rpc, "with a cron schedule", **s.started("cron", **signal, cron_schedule="@every 1000h"))
    s.history("cron")
    s.close("cron")
    s.call(rpc, "upgraded", **s.started("upgraded", **signal, versioning_override={"auto_upgrade": True}))
    s.describe("upgraded")
    s.close("upgraded")
    s.start()
    s.decide(COMPLETE)
    reuse = "WORKFLOW_ID_REUSE_POLICY"
    failed_only = {"workflow_id_reuse_policy": f"{reuse}_ALLOW_DUPLICATE_FAILED_ONLY"}
    s.call(rpc, "completed, failed only", **s.started(**signal, **failed_only))
    s.call(rpc, "completed, rejected", **s.started(**signal, workflow_id_reuse_policy=f"{reuse}_REJECT_DUPLICATE"))
    s.call(rpc, "completed", **s.started(**signal, workflow_id_reuse_policy=f"{reuse}_ALLOW_DUPLICATE"))
    s.decide(FAIL)
    s.call(rpc, "failed, failed only", **s.started(**signal, **failed_only))
    s.close()


@scenario
def external_payloads(s: Session) -> None:
    stored = payload("where it is") | {"external_payloads": [{"size_bytes": 5_000}, {"size_bytes": 70}]}
    s.start(input={"payloads": [stored]})
    s.describe(note="started")
    s.call(
        "SignalWorkflowExecution",
        workflow_execution=s.execution(),
        signal_name="signal",
        input={"payloads": [payload("here"), stored]},
    )
    s.decide(command("COMPLETE_WORKFLOW_EXECUTION", result={"payloads": [stored]}))
    s.describe(note="completed")
    s.history()


@scenario
def start_with_what_a_cron_run_passes_on(s: Session) -> None:
    failure = {"message": "wrong", "application_failure_info": {"type": "Wrong"}}
    s.start(cron_schedule="@every 1000h", last_completion_result=payloads("done"), continued_failure=failure)
    s.history()
    s.close()
    s.start("without a schedule", last_completion_result=payloads("done"), continued_failure=failure)
    s.history("without a schedule")
    s.close("without a schedule")


@scenario
def start_eagerly_with_a_version(s: Session) -> None:
    options = {
        "deployment_name": s.named("d"),
        "build_id": "1",
        "worker_versioning_mode": "WORKER_VERSIONING_MODE_VERSIONED",
    }
    s.start(request_eager_execution=True, eager_worker_deployment_options=options)
    s.close()
