"""What clients ask a server about itself, its namespaces and its task queues."""

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
    own = s.named("Own")
    s.call("AddSearchAttributes", "new", search_attributes={own: "INDEXED_VALUE_TYPE_INT"})
    s.call("AddSearchAttributes", "another type", search_attributes={own: "INDEXED_VALUE_TYPE_TEXT"})
    s.call("RemoveSearchAttributes", search_attributes=[own])


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
