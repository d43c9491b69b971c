"""Calls a server with raw gRPC, and records its responses."""

import base64
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict

from fidelity.inventory import used
from fidelity.normal import Json, Normalizer
from support.temporal import Server

IDENTITY = "the scenario"
_PATIENCE = 120.0
"""Timeout for conditions that a scenario waits for, in seconds."""


@dataclass
class Session:
    """One scenario on one server: each call is recorded as a step."""

    server: Server
    suffix: str = field(default_factory=lambda: secrets.token_hex(4))
    steps: list[Json] = field(default_factory=list)
    fields: set[str] = field(default_factory=set)
    """The fields that its requests set."""
    _requests: Iterator[int] = field(default_factory=lambda: count(1))

    @cached_property
    def normal(self) -> Normalizer:
        return Normalizer(self.suffix, self.server.namespace)

    def named(self, base: str) -> str:
        """A name that no other scenario uses; it is recorded as ``base``."""
        return f"{base}-{self.suffix}"

    # Calling

    def call(self, /, rpc: str, note: str = "", **request: Any) -> Any:
        """Call an RPC, record the outcome, and return the response, which is empty if the call failed."""
        while _is_rate_limited(begun := self.begin(rpc, **request)):
            time.sleep(1)
        return self._record(rpc, note, begun)

    def begin(self, /, rpc: str, **request: Any) -> grpc.Future:
        """Start a call of an RPC that responds later."""
        method, kind, _ = self.server.rpc(rpc)
        made = kind()
        fields = kind.DESCRIPTOR.fields_by_name
        if "namespace" in fields:
            request = {"namespace": self.server.namespace, **request}
        if "identity" in fields:
            request = {"identity": IDENTITY, **request}
        ParseDict(request, made)
        self.fields.update(used(made))
        return method.future(made, timeout=_PATIENCE)

    def end(self, rpc: str, begun: grpc.Future, note: str = "") -> Any:
        """Record the response to a started call."""
        return self._record(rpc, note, begun)

    def until(self, so: Callable[[Any], Any], rpc: str, note: str = "", **request: Any) -> Any:
        """Call an RPC again and again until its response is as wanted, and record that one."""
        return self._record(rpc, note, self.poll(so, rpc, **request))

    def poll(self, so: Callable[[Any], Any], rpc: str, **request: Any) -> grpc.Future:
        """Call an RPC until its response is as wanted or time is up; return the last call, without recording it."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            begun = self.begin(rpc, **request)
            if time.monotonic() > deadline or (begun.exception() is None and so(begun.result())):
                return begun
            time.sleep(0.05)

    def gone(self, rpc: str, note: str = "", **request: Any) -> None:
        """Call an RPC until what it asks for no longer exists, and record that error."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            error = (begun := self.begin(rpc, **request)).exception()
            if error is not None and error.code() is grpc.StatusCode.NOT_FOUND:
                break
            time.sleep(0.05)
        self._record(rpc, note, begun)

    def _record(self, rpc: str, note: str, begun: grpc.Future) -> Any:
        step: dict[str, Json] = {"rpc": rpc, **({"note": self.normal.text(note)} if note else {})}
        self.steps.append(step)
        try:
            response = begun.result()
        except grpc.RpcError as error:
            step["error"] = self.normal.error(error)
            return self.server.rpc(rpc)[2]()
        step["response"] = self.normal.message(response)
        return response

    # Common steps of scenarios

    def start(self, base: str = "w", note: str = "", **options: Any) -> Any:
        """Start a workflow, on the task queue ``q``."""
        return self.call("StartWorkflowExecution", note, **self.started(base, **options))

    def started(self, base: str = "w", **options: Any) -> Mapping[str, Any]:
        """Start a workflow: the request."""
        return {
            "workflow_id": self.named(base),
            "workflow_type": {"name": "Type"},
            "task_queue": {"name": self.named("q")},
            "request_id": self.named(f"request {next(self._requests)}"),
            **options,
        }

    def execution(self, base: str = "w", run_id: str = "") -> Json:
        return {"workflow_id": self.named(base), "run_id": run_id}

    def task(self, queue: str = "q", note: str = "", **options: Any) -> Any:
        """Poll for a workflow task."""
        return self._poll("PollWorkflowTaskQueue", queue, note, options)

    def activity_task(self, queue: str = "q", note: str = "", **options: Any) -> Any:
        """Poll for an activity task."""
        return self._poll("PollActivityTaskQueue", queue, note, options)

    def _poll(self, rpc: str, queue: str, note: str, options: Json) -> Any:
        polled = {"task_queue": {"name": self.named(queue), "kind": "TASK_QUEUE_KIND_NORMAL"}, **options}
        return self.until(lambda response: response.task_token, rpc, note, **polled)

    def complete(self, task: Any, *commands: Json, note: str = "", **options: Any) -> Any:
        """Complete a workflow task."""
        return self.call(
            "RespondWorkflowTaskCompleted", note, task_token=token(task), commands=list(commands), **options
        )

    def decide(self, *commands: Json, queue: str = "q", note: str = "", **options: Any) -> Any:
        """Take the next workflow task and complete it."""
        task = self.task(queue, note)
        self.complete(task, *commands, note=note, **options)
        return task

    def close(self, base: str = "w") -> None:
        """Terminate a workflow that the scenario needs no longer, without recording that."""
        self.begin("TerminateWorkflowExecution", workflow_execution=self.execution(base)).exception()

    def history(self, base: str = "w", note: str = "", run_id: str = "", **options: Any) -> Any:
        """The complete history of a workflow."""
        return self.call("GetWorkflowExecutionHistory", note, execution=self.execution(base, run_id), **options)

    def describe(self, base: str = "w", note: str = "", run_id: str = "") -> Any:
        return self.call("DescribeWorkflowExecution", note, execution=self.execution(base, run_id))


def _is_rate_limited(begun: grpc.Future) -> bool:
    """Whether a server refuses a call only because there were many.

    Temporal's allows a few lists and counts a second, and one batch at a time, which it finds by a list of them.
    """
    error = begun.exception()
    return (
        error is not None
        and error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        and any(limit in error.details() for limit in ("rate limit exceeded", "Max concurrent batch operations"))
    )


Scenario = Callable[[Session], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(play: Scenario) -> Scenario:
    """Have a function played on both servers."""
    SCENARIOS[play.__name__] = play
    return play


def command(kind: str, **attributes: Any) -> Json:
    """A command, such as ``START_TIMER``."""
    return {"command_type": f"COMMAND_TYPE_{kind}", f"{kind.lower()}_command_attributes": attributes}


def token(task: Any) -> str:
    """A task token, as requests take it."""
    return encoded(task.task_token)


def encoded(value: bytes) -> str:
    """Bytes, as requests take them."""
    return base64.b64encode(value).decode()


def payload(value: Any) -> Json:
    """A payload with a JSON value."""
    return {"metadata": {"encoding": encoded(b"json/plain")}, "data": encoded(json.dumps(value).encode())}


def payloads(*values: Any) -> Json:
    return {"payloads": [payload(value) for value in values]}
