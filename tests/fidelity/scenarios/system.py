"""Requests of clients about the server, its namespaces and its task queues."""

from fidelity.driver import Session, scenario
from fidelity.scenarios.starting import COMPLETE


@scenario
def the_server(s: Session) -> None:
    s.call("GetSystemInfo")
    s.call("GetClusterInfo")
    s.call("DescribeNamespace")


@scenario
def unknown_namespaces(s: Session) -> None:
    s.call("DescribeNamespace", "unknown", namespace="nowhere")
    s.call("DescribeNamespace", "no name", namespace="")


@scenario
def search_attributes(s: Session) -> None:
    s.call("AddSearchAttributes", "a system attribute", search_attributes={"WorkflowId": 2})
    s.call("AddSearchAttributes", "again", search_attributes={"CustomIntField": "INDEXED_VALUE_TYPE_INT"})
    s.call("AddSearchAttributes", "none")
    s.call("RemoveSearchAttributes", "unknown", search_attributes=["Unheard"])
    attribute = s.named("Own")
    s.call("AddSearchAttributes", "new", search_attributes={attribute: "INDEXED_VALUE_TYPE_INT"})
    s.call("AddSearchAttributes", "another type", search_attributes={attribute: "INDEXED_VALUE_TYPE_TEXT"})
    s.call("RemoveSearchAttributes", search_attributes=[attribute])


@scenario
def task_queues(s: Session) -> None:
    queue = {"task_queue": {"name": s.named("q")}}
    s.call("DescribeTaskQueue", "never polled", **queue)
    s.start()
    s.decide(COMPLETE)
    s.until(lambda response: response.pollers, "DescribeTaskQueue", "polled", **queue)
    s.call("DescribeTaskQueue", "for activities", **queue, task_queue_type="TASK_QUEUE_TYPE_ACTIVITY")
    s.call("DescribeTaskQueue", "no name", task_queue={})


@scenario
def workers(s: Session) -> None:
    queue = s.named("q")
    beat = {"worker_instance_key": s.named("worker"), "worker_identity": s.named("identity"), "task_queue": queue}
    mine = f'TaskQueue = "{queue}"'
    s.call("RecordWorkerHeartbeat", worker_heartbeat=[beat])
    s.until(lambda response: response.count, "CountWorkers", query=mine)
    s.call("CountWorkers", "none", query='TaskQueue = "none"')
    s.call("CountWorkers", "bad query", query="TaskQueue =")
    s.call("DescribeWorker", "no such worker", worker_instance_key="none")


@scenario
def batches(s: Session) -> None:
    s.call("StartBatchOperation", "no job ID", visibility_query="WorkflowId = 'none'", reason="enough")
    s.call("DescribeBatchOperation", "no such job", job_id="none")
    s.call("StopBatchOperation", "no such job", job_id="none", reason="enough")


@scenario
def known_search_attributes(s: Session) -> None:
    kinds = ("TEXT", "KEYWORD", "INT", "DOUBLE", "BOOL", "DATETIME", "KEYWORD_LIST")
    attributes = {s.named(kind.title().replace("_", "")): f"INDEXED_VALUE_TYPE_{kind}" for kind in kinds}
    s.call("AddSearchAttributes", search_attributes=attributes)
    s.call("RemoveSearchAttributes", search_attributes=list(attributes))
    s.call("RemoveSearchAttributes", "none")
    s.call("ListSearchAttributes", "unknown namespace", namespace="nowhere")


@scenario
def namespaces_listed(s: Session) -> None:
    s.call("ListNamespaces", page_size=1, namespace_filter={"include_deleted": True})
    s.call("DescribeNamespace", "by an unknown ID", namespace="", id="none")


@scenario
def workers_listed(s: Session) -> None:
    queue = s.named("q")
    now = "2030-01-01T00:00:00Z"
    slots = {"current_available_slots": 10, "current_used_slots": 1, "slot_supplier_kind": "Fixed"}
    slots |= {"total_processed_tasks": 5, "total_failed_tasks": 1}
    slots |= {"last_interval_processed_tasks": 2, "last_interval_failure_tasks": 1}
    pollers = {"current_pollers": 2, "last_successful_poll_time": now, "is_autoscaling": True}
    beat = {
        "worker_instance_key": s.named("worker"),
        "worker_identity": s.named("identity"),
        "host_info": {"host_name": "host", "process_id": "1", "current_host_cpu_usage": 0.5},
        "task_queue": queue,
        "deployment_version": {"deployment_name": "d", "build_id": "1"},
        "sdk_name": "temporal-python",
        "sdk_version": "1.0.0",
        "status": "WORKER_STATUS_RUNNING",
        "start_time": now,
        "heartbeat_time": now,
        "elapsed_since_last_heartbeat": "60s",
        "workflow_task_slots_info": slots,
        "activity_task_slots_info": slots,
        "nexus_task_slots_info": slots,
        "local_activity_slots_info": slots,
        "workflow_poller_info": pollers,
        "workflow_sticky_poller_info": pollers,
        "activity_poller_info": pollers,
        "nexus_poller_info": pollers,
        "total_sticky_cache_hit": 3,
        "total_sticky_cache_miss": 1,
        "current_sticky_cache_size": 2,
        "plugins": [{"name": "plugin", "version": "1"}],
        "drivers": [{"type": "driver"}],
    }
    s.call("RecordWorkerHeartbeat", worker_heartbeat=[beat])
    found = f'TaskQueue = "{queue}"'
    s.until(lambda response: response.workers_info, "ListWorkers", query=found, page_size=5)
    s.call("DescribeWorker", worker_instance_key=s.named("worker"))
    s.call("ListWorkers", "none", query='TaskQueue = "none"')
    s.call("ListWorkers", "bad query", query="TaskQueue =")
    s.call("ListWorkers", "unknown field", query="Unheard = 'x'")
    s.call("CountWorkers", "unknown field", query="Unheard = 'x'")
    s.call("ListWorkers", "bad token", next_page_token="AAAA")
    s.call(
        "ShutdownWorker",
        sticky_task_queue=s.named("sticky"),
        reason="enough",
        worker_heartbeat=beat | {"status": "WORKER_STATUS_SHUTDOWN"},
        worker_instance_key=s.named("worker"),
        task_queue=queue,
        task_queue_types=["TASK_QUEUE_TYPE_WORKFLOW", "TASK_QUEUE_TYPE_ACTIVITY"],
    )
    s.call("ListWorkers", "shut down", query=found)


@scenario
def task_queue_reports(s: Session) -> None:
    queue = {"task_queue": {"name": s.named("q")}}
    s.start()
    s.decide(COMPLETE)
    options = {"report_stats": True, "report_config": True, "task_queue_type": "TASK_QUEUE_TYPE_WORKFLOW"}
    s.call("DescribeTaskQueue", **queue, **options)
    s.call("DescribeTaskQueue", "of Nexus", **queue, task_queue_type="TASK_QUEUE_TYPE_NEXUS")


@scenario
def task_queue_config(s: Session) -> None:
    queue = s.named("q")
    activities = {"task_queue": queue, "task_queue_type": "TASK_QUEUE_TYPE_ACTIVITY"}
    described = {"task_queue": {"name": queue}, "task_queue_type": "TASK_QUEUE_TYPE_ACTIVITY", "report_config": True}
    limit = {"rate_limit": {"requests_per_second": 50.5}, "reason": "a migration"}
    s.call("UpdateTaskQueueConfig", "rate", **activities, identity="me", update_queue_rate_limit=limit)
    s.call("UpdateTaskQueueConfig", "rate of keys", **activities, update_fairness_key_rate_limit_default=limit)
    s.call("UpdateTaskQueueConfig", "weights", **activities, set_fairness_weight_overrides={"a": 2.0, "b": 3.0})
    s.until(lambda response: response.config.fairness_weight_overrides, "DescribeTaskQueue", "configured", **described)
    s.call("UpdateTaskQueueConfig", "no rate", **activities, update_queue_rate_limit={"reason": "it is over"})
    changed = {"set_fairness_weight_overrides": {"a": 4.0}, "unset_fairness_weight_overrides": ["b", "unknown"]}
    s.call("UpdateTaskQueueConfig", "other weights", **activities, **changed)
    s.call("UpdateTaskQueueConfig", "nothing", **activities)
    s.call("DescribeTaskQueue", "without its configuration", **{**described, "report_config": False})
    workflows = {"task_queue": queue, "task_queue_type": "TASK_QUEUE_TYPE_WORKFLOW"}
    s.call("UpdateTaskQueueConfig", "weights of workflows", **workflows, set_fairness_weight_overrides={"a": 2.0})
    s.call("UpdateTaskQueueConfig", "rate of workflows", **workflows, update_queue_rate_limit=limit)
    s.call("UpdateTaskQueueConfig", "keys of workflows", **workflows, update_fairness_key_rate_limit_default=limit)
    nexus = {"task_queue": queue, "task_queue_type": "TASK_QUEUE_TYPE_NEXUS"}
    s.call("UpdateTaskQueueConfig", "rate of Nexus calls", **nexus, update_queue_rate_limit=limit)
    negative = {"rate_limit": {"requests_per_second": -1}}
    s.call("UpdateTaskQueueConfig", "negative", **activities, update_queue_rate_limit=negative)
    s.call("UpdateTaskQueueConfig", "negative keys", **activities, update_fairness_key_rate_limit_default=negative)
    long = {**limit, "reason": 1_001 * "r"}
    s.call("UpdateTaskQueueConfig", "long reason", **activities, update_queue_rate_limit=long)
    s.call("UpdateTaskQueueConfig", "long identity", **activities, identity=1_001 * "i")
    s.call("UpdateTaskQueueConfig", "no key", **activities, set_fairness_weight_overrides={"": 1.0})
    s.call("UpdateTaskQueueConfig", "no key to unset", **activities, unset_fairness_weight_overrides=[""])
    s.call("UpdateTaskQueueConfig", "long key", **activities, unset_fairness_weight_overrides=[65 * "k"])
    s.call("UpdateTaskQueueConfig", "no weight", **activities, set_fairness_weight_overrides={"a": 0.0})
    both = {"set_fairness_weight_overrides": {"a": 1.0}, "unset_fairness_weight_overrides": ["a"]}
    s.call("UpdateTaskQueueConfig", "both", **activities, **both)
    many = {f"key-{number}": 1.0 for number in range(1_001)}
    s.call("UpdateTaskQueueConfig", "too many", **activities, set_fairness_weight_overrides=many)


@scenario
def workers_of_the_system(s: Session) -> None:
    queue = s.named("q")
    mine = {"query": f'TaskQueue = "{queue}"', "include_system_workers": True}
    beat = {"worker_instance_key": s.named("worker"), "worker_identity": s.named("identity"), "task_queue": queue}
    s.call("RecordWorkerHeartbeat", worker_heartbeat=[beat])
    s.until(lambda response: response.count, "CountWorkers", **mine)
    s.call("ListWorkers", **mine)


@scenario
def cached_namespaces(s: Session) -> None:
    s.call("DescribeNamespace", weak_consistency=True)
    s.call("DescribeNamespace", "unknown", namespace="nowhere", weak_consistency=True)
    s.call("ListNamespaces", "bad token", next_page_token="AAAA")
