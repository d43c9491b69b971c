"""`perdure.client` against an operator: flows, Workflows, Schedules, and errors."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from perdure.api.values import ValueTypeError
from perdure.client import (
    AsyncClient,
    Client,
    ClientError,
    LogLine,
    NotFoundError,
    NotStartedError,
    RefusedError,
    RunCancelledError,
    RunFailedError,
    RunRequest,
    RunTerminatedError,
)
from support.temporal import Server


async def test_a_flow_is_started_signaled_queried_updated_and_its_result_is_typed(client: AsyncClient) -> None:
    from support.example_runs import Bill, billing  # noqa: PLC0415 - after the listener of the worker

    run = await client.start(billing, "ann", amounts=[7, 40])
    assert await run.update("add", 2, result_type=int) == 3
    await run.signal("approve", 30)
    bill = await run.result(timeout="1m")
    assert bill == Bill("ann", 7 + 30 + 2)
    assert await run.query("paid", result_type=int) == bill.amount
    found = await run.describe()
    assert (found.phase, found.closed) == ("Completed", True)
    assert [step.path for step in found.steps() if step.kind == "activity"] == ["charge", "charge#2", "charge#3"]
    assert {event["eventType"] for event in await run.history()} >= {"WorkflowExecutionUpdateCompleted"}


async def test_a_run_is_found_again_with_its_type(client: AsyncClient) -> None:
    from support.example_runs import Bill, billing  # noqa: PLC0415 - after the listener of the worker

    request = RunRequest.of_flow(billing, "bob", [1])
    await client.submit(request, name="bob-1", workflow_id="bob", labels={"team": "shop"})
    for run in (client.run("bob-1", billing), await client.find("bob", billing)):
        assert run.name == "bob-1"
    await run.signal("approve", 9)
    assert await run.result() == Bill("bob", 1)
    listed = await client.list(selector="team=shop", workflow="billing")
    assert [(each.name, each.phase) for each in listed] == [("bob-1", "Completed")]
    assert await client.list(open_only=True) == []


async def test_a_failure_is_an_exception_with_its_type_and_the_reason(client: AsyncClient) -> None:
    from support.example_runs import billing  # noqa: PLC0415 - after the listener of the worker

    run = await client.start(billing, "eve", [-5])
    await run.signal("approve", 1)
    with pytest.raises(RunFailedError, match="eve gets no money") as caught:
        await run.result()
    assert (caught.value.phase, caught.value.type) == ("Failed", "UnpaidError")
    assert caught.value.reason
    with pytest.raises(RefusedError) as refused:
        await run.signal("approve", 1)
    assert refused.value.reason == "WorkflowExecutionCompleted"


async def test_a_retry_repeats_what_failed_and_keeps_what_was_done_before(client: AsyncClient) -> None:
    from support.example_runs import Bill, billing, customers  # noqa: PLC0415 - after the listener of the worker

    customers.clear()
    run = await client.start(billing, "eve", [4, 5])
    await run.signal("approve", 9)
    assert await run.result() == Bill("eve", 9)
    failed = await client.start(billing, "bob", [3, -5, 2])
    await failed.signal("approve", 9)
    with pytest.raises(RunFailedError):
        await failed.result()
    charged = list(customers["bob"])
    again = await failed.retry(reason="the account is closed")
    with pytest.raises(RunFailedError):
        await again.result()
    assert [*charged, -5] == customers["bob"] == [3, -5, -5]
    third = await run.retry("charge#2")
    assert await third.result() == Bill("eve", 9)
    assert customers["eve"] == [4, 5, 5]
    with pytest.raises(RefusedError, match=r"nothing that the code of the run .* has started has failed"):
        await run.retry()
    with pytest.raises(RefusedError, match="has started no activity `refund`"):
        await run.retry("refund")


async def test_arguments_are_checked_before_anything_is_sent(client: AsyncClient) -> None:
    from support.example_runs import billing  # noqa: PLC0415 - after the listener of the worker

    with pytest.raises(ValueTypeError, match="argument `amounts` of billing"):
        await client.start(billing, "ann", ["a lot"])  # type: ignore[list-item]
    assert await client.list() == []


async def test_runs_end_in_other_ways(client: AsyncClient) -> None:
    first, second = [await client.start_workflow("greeting", {"name": name}) for name in ("ann", "bob")]
    await first.cancel("ordered twice")
    with pytest.raises(RunCancelledError):
        await first.result()
    await second.terminate("runs in circles")
    with pytest.raises(RunTerminatedError, match="runs in circles"):
        await second.result()


async def test_a_workflow_is_followed_until_it_ends(client: AsyncClient) -> None:
    run = await client.start_workflow("greeting", {"name": "ann"}, result_type=str, name="hello")
    lines: list[str] = []
    waiting = asyncio.create_task(run.wait(timeout="1m", progress=lines.append))
    watching = asyncio.create_task(anext(each async for each in run.watch() if each.closed))
    await run.signal("go")
    assert (await waiting).phase == (await watching).phase == "Completed"
    assert await run.result() == "hello ann"
    assert any("wait" in line for line in lines), lines
    with pytest.raises(ValueTypeError, match="the result of hello"):
        await client.run("hello", result_type=int).result()


async def test_a_run_that_does_not_end_in_time_keeps_running(client: AsyncClient) -> None:
    run = await client.start_workflow("greeting", {"name": "ann"})
    with pytest.raises(TimeoutError, match=r"has not ended within 0\.2"):
        await run.result(timeout=0.2)
    assert not (await run.describe()).closed


async def test_errors_say_why(client: AsyncClient) -> None:
    with pytest.raises(NotStartedError) as refused:
        await client.start_workflow("greeting", {"name": 7})
    assert refused.value.reason == "InvalidInput"
    with pytest.raises(NotFoundError, match="there is no WorkflowRun `nobody`"):
        await client.run("nobody").result()
    with pytest.raises(NotFoundError, match="no WorkflowRun with workflow ID"):
        await client.find("nobody")
    assert issubclass(NotFoundError, ClientError)


async def test_the_logs_of_attempts_are_read(client: AsyncClient) -> None:
    from support.example_runs import billing  # noqa: PLC0415 - after the listener of the worker

    run = await client.start(billing, "ann", [1])
    await run.signal("approve", 1)
    await run.result()
    lines = [line async for line in run.logs()]
    assert [(line.step, line.attempt, line.text) for line in lines] == [("charge", 1, "the log of a container")]
    with pytest.raises(ClientError, match="has no step `refund`"):
        _ = [line async for line in run.logs("refund")]


async def test_schedules_are_created_triggered_and_paused(client: AsyncClient) -> None:
    schedules = client.schedules
    request = RunRequest.of_workflow("greeting", {"name": "ann"}, result_type=str)
    created = await schedules.create("daily", request, cron="30 2 * * *", time_zone="Europe/Berlin")
    assert (created.name, created.paused) == ("daily", False)
    run = await schedules.trigger("daily")
    assert run is not None
    await run.signal("go")
    assert await run.result() == "hello ann"
    await schedules.pause("daily", "the database is moved")
    found = await schedules.get("daily")
    assert (found.ready, found.paused, found.runs) == (True, True, (run.name,))
    await schedules.unpause("daily")
    assert [each.paused for each in await schedules.list()] == [False]
    with pytest.raises(RefusedError):
        await schedules.backfill("daily", datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(ClientError, match="nothing was created"):
        await schedules.create("never", request, cron="0 0 30 2 *")
    await schedules.delete("daily")
    with pytest.raises(NotFoundError):
        await schedules.get("daily")


async def test_a_flow_knows_when_its_schedule_was_due(client: AsyncClient) -> None:
    from support.example_runs import due  # noqa: PLC0415 - after the listener of the worker

    request = RunRequest.of_flow(due)
    assert await (await client.submit(request)).result() == "None"
    await client.schedules.create("dated", request, cron="30 2 * * *", time_zone="Europe/Berlin")
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    await client.schedules.backfill("dated", begin, begin + timedelta(days=1))
    (run,) = await client.list(selector="perdure.dev/schedule=dated")
    assert await client.run(run.name, due).result() == "2026-01-01 01:30:00+00:00"


async def test_a_backfill_is_held_and_cancelled(client: AsyncClient) -> None:
    from support.example_runs import due  # noqa: PLC0415 - after the listener of the worker

    schedules, begin = client.schedules, datetime(2026, 1, 1, tzinfo=UTC)
    await schedules.create("filled", RunRequest.of_flow(due), cron="30 2 * * *")
    await schedules.pause("filled")
    await schedules.backfill("filled", begin - timedelta(days=900), begin, at_most=1)
    await schedules.pause("filled")
    status = (await schedules.get("filled")).object["status"]
    assert [each["held"] for each in status["backfills"]] == [True]
    await schedules.cancel_backfills("filled", "wrong days")
    await schedules.cancel_backfills("filled")
    await schedules.unpause("filled")
    status = (await schedules.get("filled")).object["status"]
    assert "backfills" not in status
    assert 1 <= status["counts"]["actions"] < 900


async def test_a_program_without_an_event_loop_does_the_same(server: Server, worker: None) -> None:  # noqa: ARG001
    from support.example_runs import Bill, billing  # noqa: PLC0415 - after the listener of the worker

    def program() -> tuple[Bill, str, str, list[LogLine]]:
        with Client(frontend=f"http://{server.http_address}") as client:
            run = client.start(billing, "ann", amounts=[3])
            assert run.query("paid", result_type=int) == 0
            run.signal("approve", 3)
            states = [each.phase for each in run.watch()]
            return run.result(), states[-1], run._repr_html_(), list(run.logs("charge"))

    bill, last, html, lines = await asyncio.to_thread(program)
    assert (bill, last) == (Bill("ann", 3), "Completed")
    assert "<svg" in html
    assert "charge" in html
    assert [line.text for line in lines] == ["the log of a container"]
