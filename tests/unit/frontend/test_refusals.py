"""What clients cannot ask for is refused by the name of the field."""

from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from temporalio.api.activity.v1 import ActivityOptions
from temporalio.api.batch.v1 import BatchOperationReset
from temporalio.api.command.v1 import Command
from temporalio.api.common.v1 import ResetOptions
from temporalio.api.enums.v1 import CommandType
from temporalio.api.workflowservice.v1 import (
    CountWorkflowExecutionsRequest,
    ResetWorkflowExecutionRequest,
    ShutdownWorkerRequest,
    StartBatchOperationRequest,
    StartWorkflowExecutionRequest,
)

from perdure.engine.options import Options
from perdure.engine.retry import RetryPolicy
from perdure.frontend.commands import BadCommandError, Reader
from perdure.frontend.core import Core
from perdure.frontend.errors import RpcError
from perdure.frontend.given import UnfitError
from perdure.frontend.runs import Runs
from perdure.frontend.server import _served
from perdure.frontend.service.batches import _request
from perdure.frontend.service.call import Call
from perdure.frontend.service.changing import changed_options
from perdure.frontend.service.resets import Resets
from perdure.frontend.service.starting import Starting, _policies
from perdure.frontend.service.tasks import WorkflowTasks
from perdure.kube import client as api

NOW = Options(task_queue="orders", retry_policy=RetryPolicy(maximum_attempts=7))


def test_49_a_cron_schedule_of_a_start_is_refused() -> None:
    request = StartWorkflowExecutionRequest(workflow_id="a", cron_schedule="@daily")
    request.workflow_type.name = request.task_queue.name = "a"
    with pytest.raises(RpcError, match="cron_schedule"):
        _policies(request, "Fail")


def test_49_a_cron_schedule_of_a_child_fails_the_workflow_task() -> None:
    command = Command(command_type=CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION)
    said = command.start_child_workflow_execution_command_attributes
    said.workflow_id = said.workflow_type.name = "a"
    said.cron_schedule = "@daily"
    with pytest.raises(BadCommandError, match="CronSchedule") as caught:
        Reader(3, {}).read([command], [])
    assert caught.value.cause == "BadStartChildExecutionAttributes"


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("start_delay", {}),
        ("task_queue.name", {"task_queue": {"name": "pods/tool"}}),
        ("retry_policy", {"retry_policy": {"maximum_attempts": -1}}),
        ("start_to_close_timeout", {}),
    ],
)
def test_options_that_an_activity_cannot_have(path: str, options: dict[str, Any]) -> None:
    with pytest.raises(RpcError, match=path.partition(".")[0]):
        changed_options(NOW, ActivityOptions(**options), [path])


def test_only_what_the_mask_names_is_changed() -> None:
    asked = ActivityOptions(task_queue={"name": "other"}, retry_policy={"maximum_attempts": 2})
    asked.start_to_close_timeout.FromSeconds(5)
    asked.retry_policy.initial_interval.FromSeconds(9)
    changed = changed_options(NOW, asked, ["start_to_close_timeout", "retry_policy.initial_interval"])
    assert changed.task_queue == "orders"
    assert changed.start_to_close_timeout is not None
    assert (changed.retry_policy.maximum_attempts, changed.retry_policy.initial_interval.seconds) == (7, 9)


def test_a_reset_in_a_batch_says_where_to() -> None:
    request = StartBatchOperationRequest(
        reset_operation=BatchOperationReset(options=ResetOptions(workflow_task_id=8)), reason="mended"
    )
    said = {"reapplySignals": True, "eventId": 7, "reason": "mended"}
    assert _request(request, "reset_operation") == {"reset": said}
    for asked in (
        BatchOperationReset(),
        BatchOperationReset(reset_type=99),  # type: ignore[arg-type]
        BatchOperationReset(options=ResetOptions(workflow_task_id=2**62)),
    ):
        with pytest.raises(RpcError, match="reset_operation"):
            _request(StartBatchOperationRequest(reset_operation=asked), "reset_operation")


async def test_a_reset_to_an_event_that_no_history_has_is_refused() -> None:
    request = ResetWorkflowExecutionRequest(workflow_task_finish_event_id=2**62)
    with pytest.raises(RpcError, match="WorkflowTaskFinishEventId"):
        await Resets(Core()).reset_workflow_execution(request, Call(None))


class Context:
    """Of one RPC: what it has come to."""

    told: tuple[grpc.StatusCode, str]

    def time_remaining(self) -> None:
        return None

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def set_trailing_metadata(self, _: object) -> None:
        pass

    async def abort(self, code: grpc.StatusCode, message: str) -> None:
        self.told = code, message


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnfitError("invalid run_timeout"), grpc.StatusCode.INVALID_ARGUMENT),
        (OverflowError("a mistake of ours"), grpc.StatusCode.INTERNAL),
        (ValueError("a mistake of ours"), grpc.StatusCode.INTERNAL),
    ],
)
async def test_what_cannot_be_taken_is_the_clients_mistake_and_all_else_is_ours(
    error: Exception, code: grpc.StatusCode
) -> None:
    async def learned() -> None:
        pass

    async def handler(_: object, __: Call) -> None:
        raise error

    manager: Any = SimpleNamespace(learned=learned)
    context = Context()
    await _served("CountWorkflowExecutions", handler, manager, None)(
        CountWorkflowExecutionsRequest(namespace="orders"), context
    )
    assert context.told[0] is code
    await _served("CountWorkflowExecutions", handler, manager, None)(CountWorkflowExecutionsRequest(), context)
    assert context.told == (grpc.StatusCode.INVALID_ARGUMENT, "Namespace is not set on request.")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (api.NotFoundError(404, "NotFound", 'namespaces "x" not found'), grpc.StatusCode.NOT_FOUND, "Namespace orders"),
        (api.TooLargeError(500, "", "etcdserver: request is too large"), grpc.StatusCode.INVALID_ARGUMENT, "Blob data"),
    ],
)  # fmt: skip
async def test_a_start_that_the_api_server_does_not_take_is_not_tried_again(
    error: Exception, code: grpc.StatusCode, message: str
) -> None:
    async def learned() -> None:
        pass

    async def create(*_: object) -> None:
        raise error

    def nothing(*_: object) -> None:
        return None

    core = Core()
    directory = SimpleNamespace(named=nothing, open_run=nothing, newest=nothing)
    manager: Any = SimpleNamespace(learned=learned, directory=directory, client=SimpleNamespace(create=create))
    core.runs = Runs(manager)
    request = StartWorkflowExecutionRequest(namespace="orders", workflow_id="w", workflow_type={"name": "W"})
    request.task_queue.name = "q"
    with pytest.raises(RpcError, match=message) as caught:
        await Starting(core, WorkflowTasks(core)).begin(request, "Fail")
    assert caught.value.code is code


async def test_a_worker_that_leaves_touches_the_runs_of_its_namespace_only() -> None:
    asked: list[str] = []
    running = [
        SimpleNamespace(
            ref=SimpleNamespace(uid=name), state=SimpleNamespace(closed=False, code=SimpleNamespace(sticky_queue="s"))
        )
        for name in ("mine", "others")
    ]
    entries = {"mine": SimpleNamespace(namespace="orders"), "others": SimpleNamespace(namespace="secrets")}
    manager: Any = SimpleNamespace(
        all_running=lambda: running,
        directory=entries,
        ask=lambda entry, *_: asked.append(entry.namespace),
    )
    core = Core()
    core.runs = Runs(manager)
    await WorkflowTasks(core).shutdown_worker(
        ShutdownWorkerRequest(namespace="orders", sticky_task_queue="s"), Call(None)
    )
    assert asked == ["orders"]
