"""Workflows of the tests with Temporal's SDK. Light, because the SDK's sandbox imports it for every workflow."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, FailureError

from support.sdk.activities import greet, wait_for_cancel

SHORT = timedelta(seconds=20)


@workflow.defn
class Greet:
    @workflow.run
    async def run(self, name: str) -> str:
        return await workflow.execute_activity(greet, name, start_to_close_timeout=SHORT)


@workflow.defn
class Call:
    """Calls an activity with the given options."""

    @workflow.run
    async def run(self, name: str, arguments: list[Any], options: dict[str, Any]) -> Any:
        said: dict[str, Any] = {key: timedelta(seconds=options[key]) for key in options if key.endswith("_timeout")}
        if "task_queue" in options:
            said["task_queue"] = options["task_queue"]
        said.setdefault("start_to_close_timeout", SHORT)
        if "retry" in options:
            retry = dict(options["retry"])
            if "initial_interval" in retry:
                retry["initial_interval"] = timedelta(seconds=retry["initial_interval"])
            said["retry_policy"] = RetryPolicy(**retry)
        return await workflow.execute_activity(name, args=arguments, **said)


class Collects:
    """Collects signals until it is closed."""

    def __init__(self) -> None:
        self.items: list[str] = []
        self.open = True

    @workflow.signal
    def put(self, item: str) -> None:
        self.items.append(item)

    @workflow.signal
    def close(self) -> None:
        self.open = False

    @workflow.query
    def look(self) -> list[str]:
        return self.items


@workflow.defn
class Box(Collects):
    """Collects signals and updates until it is closed."""

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: not self.open)
        return self.items

    @workflow.query
    def wrong(self) -> str:
        raise ApplicationError("no such thing", type="Nothing")

    @workflow.update
    async def add(self, item: str) -> int:
        self.items.append(item)
        await workflow.sleep(timedelta(milliseconds=50))
        return len(self.items)

    @add.validator
    def check(self, item: str) -> None:
        if not item:
            raise ValueError("empty")

    @workflow.update(unfinished_policy=workflow.HandlerUnfinishedPolicy.ABANDON)
    async def never(self) -> None:
        await workflow.wait_condition(lambda: False)


@workflow.defn
class Sleeper:
    @workflow.run
    async def run(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "woken"


@workflow.defn
class CleansUp:
    """Sleeps; when cancelled, calls an activity, and is cancelled then."""

    @workflow.run
    async def run(self) -> str:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await workflow.execute_activity(greet, "goodbye", start_to_close_timeout=SHORT)
            raise
        return "slept"


@workflow.defn
class CancelsActivity:
    @workflow.run
    async def run(self, started: bool) -> str:
        handle = workflow.start_activity(
            wait_for_cancel,
            task_queue=None if started else "nobody-polls-this",
            start_to_close_timeout=SHORT,
            heartbeat_timeout=timedelta(seconds=10),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        await asyncio.sleep(1.0 if started else 0.2)
        handle.cancel()
        try:
            await handle
        except FailureError as error:
            return type(error.__cause__ or error).__name__
        return "not cancelled"


@workflow.defn
class Counter:
    """Continues as new until it has counted to zero."""

    @workflow.run
    async def run(self, count: int) -> str:
        if count:
            workflow.continue_as_new(count - 1)
        return workflow.info().continued_run_id or ""


@workflow.defn
class Rounds(Collects):
    """Continues as new after a number of signals and updates; ends on a signal, with all of them."""

    @workflow.run
    async def run(self, each: int, before: list[str]) -> list[str]:
        await workflow.wait_condition(lambda: len(self.items) >= each or not self.open)
        if self.open:
            workflow.continue_as_new(args=[each, before + self.items])
        return before + self.items

    @workflow.update
    def add(self, item: str) -> str:
        self.items.append(item)
        return item


@workflow.defn
class Brief:
    """Ends after the first signal or update."""

    def __init__(self) -> None:
        self.items: list[str] = []

    @workflow.run
    async def run(self) -> list[str]:
        await workflow.wait_condition(lambda: bool(self.items))
        return self.items

    @workflow.signal
    def put(self, item: str) -> None:
        self.items.append(item)

    @workflow.update
    def add(self, item: str) -> str:
        self.items.append(item)
        return item


@workflow.defn
class SendsSignals:
    """Sends signals to another workflow, and returns the errors."""

    @workflow.run
    async def run(self, workflow_id: str, run_id: str | None, things: list[str]) -> list[str]:
        handle = workflow.get_external_workflow_handle(workflow_id, run_id=run_id)
        wrong = []
        for thing in things:
            try:
                await handle.signal("put", thing)
            except FailureError as error:
                wrong.append(str(error))
        return wrong


@workflow.defn
class FailsTask:
    """Its code fails until a signal arrives, without failing the workflow."""

    @workflow.run
    async def run(self) -> str:
        if workflow.unsafe.is_replaying() or workflow.info().attempt:
            pass
        await workflow.wait_condition(lambda: self.good)
        return "mended"

    def __init__(self) -> None:
        self.good = False

    @workflow.signal
    def spoil(self) -> None:
        raise RuntimeError("a mistake in the code")

    @workflow.signal
    def fix(self) -> None:
        self.good = True


@workflow.defn
class Fails:
    @workflow.run
    async def run(self, attempts: int) -> int:
        attempt = workflow.info().attempt
        if attempt < attempts:
            raise ApplicationError("not yet", type="NotYet")
        return attempt


@workflow.defn
class CountsRuns:
    """Returns which run of a cron schedule it is, by the result of the run before."""

    @workflow.run
    async def run(self) -> int:
        return (workflow.get_last_completion_result(int) or 0) + 1


@workflow.defn
class Chain:
    """Calls one activity after another: what is interrupted in the tests of restarts."""

    @workflow.run
    async def run(self, length: int) -> int:
        total = 0
        for number in range(length):
            await workflow.execute_activity(greet, str(number), start_to_close_timeout=SHORT)
            await asyncio.sleep(0.05)
            total += 1
        return total


@workflow.defn
class CallsLocally:
    """Calls a local activity of its worker, which extends its workflow task meanwhile."""

    @workflow.run
    async def run(self, name: str) -> str:
        return await workflow.execute_local_activity(name, result_type=str, start_to_close_timeout=timedelta(minutes=5))


@workflow.defn
class Returns:
    @workflow.run
    async def run(self, size: int) -> str:
        return "x" * size
