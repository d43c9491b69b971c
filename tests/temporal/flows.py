"""Workflows and activities of the tests with Temporal's SDK. Light, as the SDK's sandbox imports it for every workflow."""

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, ChildWorkflowError, FailureError

SHORT = timedelta(seconds=20)
BILLING = "billing"
"""A Nexus service."""
ONCE = RetryPolicy(maximum_attempts=1)
QUICK = RetryPolicy(initial_interval=timedelta(milliseconds=100), backoff_coefficient=1.0)


@activity.defn
async def greet(name: str) -> str:
    return f"Hello, {name}"


@activity.defn
async def fail(kind: str, final: bool) -> None:
    raise ApplicationError("it failed", {"code": 7}, type=kind, non_retryable=final)


@activity.defn
async def fail_until(attempt: int) -> int:
    if activity.info().attempt < attempt:
        raise ApplicationError("not yet", type="NotYet")
    return activity.info().attempt


@activity.defn
async def fail_with_delay(delay: float) -> None:
    """Says itself when it is to be tried again."""
    raise ApplicationError("soon", type="Soon", next_retry_delay=timedelta(seconds=delay))


@activity.defn
async def fail_at_length() -> None:
    raise ApplicationError("x" * 9_000, "y" * 9_000, type="Long")


@activity.defn
async def carry() -> list[Any]:
    """Tells its attempt, and what the one before has told in its heartbeats; mortal.py has one that does not end."""
    return [activity.info().attempt, *activity.info().heartbeat_details]


@activity.defn
async def beat_then_fail() -> list[Any]:
    """Heartbeats in its first attempt; the third tells what it was given."""
    info = activity.info()
    if info.attempt == 1:
        activity.heartbeat("p1")
    if info.attempt < 3:
        raise ApplicationError("again", type="Again")
    return [info.attempt, *info.heartbeat_details]


@activity.defn
async def wait_for_cancel() -> str:
    try:
        while True:
            activity.heartbeat("here")
            await asyncio.sleep(0.1)
    except asyncio.CancelledError:
        activity.heartbeat("stopping")
        raise


@activity.defn
async def silent() -> None:
    await asyncio.sleep(60)


@activity.defn
async def elsewhere() -> str:
    """Somebody else completes it, by the token or the id."""
    activity.raise_complete_async()


@workflow.defn
class Greet:
    @workflow.run
    async def run(self, name: str) -> str:
        return await workflow.execute_activity(greet, name, start_to_close_timeout=SHORT)


@workflow.defn
class Call:
    """Calls an activity as it is told to."""

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
    """What it is told, until it is closed."""

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
            heartbeat_timeout=timedelta(seconds=2),
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
    """Continues as new whenever it has been told so many things; ends when it is told to, with all of them."""

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
    """Ends as soon as it was told something."""

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
class Parent:
    @workflow.run
    async def run(self, policy: int, child_id: str, ending: str) -> str:
        child = await workflow.start_child_workflow(
            Box.run, id=child_id, parent_close_policy=workflow.ParentClosePolicy(policy)
        )
        if ending == "continue":
            workflow.continue_as_new(args=[policy, child_id + "-next", "return"])
        if ending == "result":
            await child.signal(Box.put, "from parent")
            await child.signal(Box.close)
            return ",".join(await child)
        return child.id


@workflow.defn
class StartsTwice:
    @workflow.run
    async def run(self, other: str) -> str:
        try:
            await workflow.start_child_workflow(Box.run, id=other)
        except FailureError as error:
            return type(error).__name__
        return "started"


@workflow.defn
class CancelsChild:
    """Has a child continue as new, and cancels it once it is told to."""

    def __init__(self) -> None:
        self.told = False

    @workflow.run
    async def run(self, child_id: str) -> str:
        child = await workflow.start_child_workflow(Rounds.run, args=[1, []], id=child_id)
        await child.signal(Rounds.put, "first")
        await workflow.wait_condition(lambda: self.told)
        child.cancel()
        try:
            await child
        except FailureError as error:
            return type(error.cause).__name__
        return "completed"

    @workflow.signal
    def cancel_child(self) -> None:
        self.told = True


@workflow.defn
class Nests:
    """Starts itself as its child until it may not; tells how deep it is then, and how that looks."""

    @workflow.run
    async def run(self, depth: int) -> list[Any]:
        try:
            below: list[Any] = await workflow.execute_child_workflow(Nests.run, depth + 1)
        except ChildWorkflowError as error:
            return [depth, getattr(error.cause, "type", None)]
        return below


@workflow.defn
class Tells:
    """Tells another workflow some things, one after the other; what has gone wrong."""

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
    """Its code fails until it is told to go on: the workflow does not fail by that."""

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
    def mend(self) -> None:
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
class Orchestrates:
    """Has an activity of a Workflow done by a pod, and starts a Workflow as a child."""

    @workflow.run
    async def run(self, name: str) -> list[Any]:
        in_pod = await workflow.execute_activity(
            "work", name, task_queue="pods/tool", start_to_close_timeout=timedelta(minutes=2)
        )
        child: Any = await workflow.execute_child_workflow(
            "tool", {"name": name}, id=f"{workflow.info().workflow_id}-child", task_queue="workflows"
        )
        return [in_pod, child]


@workflow.defn
class CallsLocally:
    """Has an activity done by the worker that decides, which prolongs its workflow task meanwhile."""

    @workflow.run
    async def run(self, name: str) -> str:
        return await workflow.execute_local_activity(name, result_type=str, start_to_close_timeout=timedelta(minutes=5))


@workflow.defn
class Returns:
    @workflow.run
    async def run(self, size: int) -> str:
        return "x" * size


@workflow.defn
class Charge:
    """Handles a Nexus operation: pays in a second run, or not at all."""

    @workflow.run
    async def run(self, name: str) -> str:
        if name == "broke":
            raise ApplicationError("no money", type="Broke")
        if name == "slow":
            await workflow.wait_condition(lambda: False)
        if workflow.info().continued_run_id is None:
            workflow.continue_as_new(name)
        return f"{name} has paid, in 2 runs"


@workflow.defn
class CallsBilling:
    """Calls a Nexus operation in another namespace."""

    def __init__(self) -> None:
        self.begun = False

    @workflow.run
    async def run(self, endpoint: str, operation: str, name: str) -> str:
        client = workflow.create_nexus_client(service=BILLING, endpoint=endpoint)
        handle = await client.start_operation(operation, name, output_type=str)
        self.begun = True
        return await handle

    @workflow.update
    async def started(self) -> None:
        """Wait until the operation has started."""
        await workflow.wait_condition(lambda: self.begun)


@activity.defn
async def echo(content: bytes) -> bytes:
    return content


@activity.defn
async def beat_at_length(size: int) -> int:
    """Heartbeats with large details in its first attempt; the next one tells how much of them it was given."""
    if activity.info().attempt == 1:
        for filler in (b"a", b"b"):
            activity.heartbeat(filler * size)
            await asyncio.sleep(0.05)
        raise ApplicationError("again", type="Again")
    (details,) = activity.info().heartbeat_details
    return len(details) if set(details) == {ord("b")} else 0


@activity.defn
async def give(size: int) -> bytes:
    return b"r" * size


@workflow.defn
class Carries:
    """Hands what is large on in every way; with a negative number it waits until it is closed."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self.open = True

    @workflow.run
    async def run(self, content: bytes, left: int) -> bytes:
        self.got.append(len(content))
        if left > 0:
            content = await workflow.execute_activity(echo, content, start_to_close_timeout=SHORT)
            content = await workflow.execute_child_workflow(Carries.run, args=[content, 0])
            workflow.continue_as_new(args=[content, left - 1])
        if left < 0:
            await workflow.wait_condition(lambda: not self.open)
        return content

    @workflow.signal
    async def take(self, content: bytes) -> None:
        self.got.append(len(content))

    @workflow.signal
    async def close(self) -> None:
        self.open = False

    @workflow.update
    async def change(self, content: bytes) -> bytes:
        self.got.append(len(content))
        return content[::-1]

    @workflow.query
    def sizes(self) -> list[int]:
        return self.got


@workflow.defn
class BeatsAtLength:
    @workflow.run
    async def run(self, size: int) -> int:
        return await workflow.execute_activity(
            beat_at_length, size, start_to_close_timeout=SHORT, heartbeat_timeout=SHORT, retry_policy=QUICK
        )


@workflow.defn
class Gives:
    """Has an activity return so much."""

    @workflow.run
    async def run(self, size: int) -> int:
        return len(await workflow.execute_activity(give, size, start_to_close_timeout=SHORT, retry_policy=ONCE))


ACTIVITIES = [
    greet,
    fail,
    fail_until,
    fail_with_delay,
    fail_at_length,
    carry,
    beat_then_fail,
    wait_for_cancel,
    silent,
    elsewhere,
    echo,
    beat_at_length,
    give,
]
WORKFLOWS = [
    Greet,
    Call,
    Box,
    Sleeper,
    CleansUp,
    CancelsActivity,
    Counter,
    Rounds,
    Brief,
    Parent,
    StartsTwice,
    CancelsChild,
    Nests,
    Tells,
    FailsTask,
    Fails,
    CountsRuns,
    Chain,
    Orchestrates,
    CallsLocally,
    Returns,
    CallsBilling,
    Carries,
    BeatsAtLength,
    Gives,
]
