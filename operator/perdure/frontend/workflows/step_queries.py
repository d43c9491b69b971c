"""Queries to runs of Workflows, which this process answers: their steps, current actions, and details for the Web UI."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from google.protobuf.json_format import MessageToDict
from temporalio.api.common.v1 import Payloads
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.api.workflowservice.v1 import QueryWorkflowRequest, QueryWorkflowResponse

from perdure.api.names import pod_name
from perdure.controller.errors import NotYetError, when_ready
from perdure.controller.reconcile.newer_states import NewerStateError, message_for
from perdure.controller.workflows.definitions import Definition, read_spec
from perdure.engine.failures import Failure
from perdure.engine.state import PendingActivity, RunState
from perdure.frontend.errors import invalid, precondition, unavailable
from perdure.frontend.messages import payloads as data
from perdure.frontend.runs.gateway import RunGateway, View
from perdure.language.interpreter import progress
from perdure.language.memory import Memory, load_memory
from perdure.language.program import InvalidWorkflowError, Program
from perdure.language.signals import awaited, known_signals
from perdure.language.step_tree import OpenPaths, StepNode, open_steps, step_tree

_COMPILING_SECONDS = 10.0
"""How long a query waits for the definition to be compiled."""

STEPS, STACK, METADATA = "steps", "__stack_trace", "__temporal_workflow_metadata"
QUERIES = {
    STEPS: "The steps of the run as JSON: status, times, and the content of open steps",
    STACK: "The current steps of the run",
    METADATA: "Signals, queries, and current details of the run",
}

_ICONS = {
    "Succeeded": "✓",
    "Failed": "✗",
    "Cancelled": "-",
    "Skipped": "-",
    "Running": "▶",
    "Waiting": "○",
    "Stopped": "■",
}
_TARGETED = frozenset({"activity", "call", "childWorkflow", "fail", "waitForSignal"})
"""Kinds of steps that are shown with their targets."""
_MAX_PARTS = 20
"""Maximum number of shown open items or branches of a step, and of shown pods."""
_MAX_TEXT = 300


@dataclass(frozen=True, slots=True)
class QueriedRun:
    """A run that answers queries."""

    name: str
    namespace: str
    phase: str
    program: Program
    state: RunState
    console_url: str = ""
    """Address of the console; empty for no link to it."""

    @property
    def memory(self) -> Memory:
        """The memory of the interpreter."""
        return load_memory(self.state.memory)

    def steps(self) -> tuple[StepNode, ...]:
        """The steps of the run, with the open parts of open ones."""
        memory, closed = msgspec.to_builtins(self.memory), self.state.closed
        # A step that waits for its limits is shown itself, with this wait.
        open_ = (
            set() if closed else {each.activity_id for each in self.state.activities.values() if not each.takes_limits}
        )
        work = OpenPaths(activities=dict.fromkeys(open_, "Running"), timers=self.state.timers.keys())
        return step_tree(self.program.spec.dump(), memory, work=work, closed=closed, only_open=True)

    def pods(self, activity: PendingActivity) -> list[str]:
        """The created pods of an activity, the newest last."""
        if activity.by_worker or activity.takes_limits:
            return []
        created = activity.attempt if activity.started_time else activity.attempt - 1
        first = max(1, created - _MAX_PARTS + 1)
        return [pod_name(self.name, activity.scheduled_event_id, number) for number in range(first, created + 1)]


def answer(run: QueriedRun, query: str, workflow_type: str) -> Payloads | None:
    """Answer a query; None if the query does not exist.

    Args:
        run: The run.
        query: Name of the query.
        workflow_type: Name of its Workflow, for clients.
    """
    answers: dict[str, Callable[[], Any]] = {
        STEPS: lambda: [_as_json(step) for step in run.steps()],
        STACK: lambda: "\n".join(_stack(run)),
        METADATA: lambda: MessageToDict(_metadata(run, workflow_type)),
    }
    return Payloads(payloads=[data.one_payload(answers[query]())]) if query in answers else None


def _as_json(step: StepNode) -> dict[str, Any]:
    shown: dict[str, Any] = {"path": step.path, "name": step.name, "kind": _kind(step), "target": _target(step)}
    shown["status"] = step.state
    if not step.part:  # those of a part are those of its steps
        shown |= {"startTime": _time(step.start), "endTime": _time(step.end)}
    if step.closed_items is not None:
        shown |= {"items": step.count, "closedItems": step.closed_items}
    shown["steps"] = [_as_json(each) for each in step.steps]
    return {name: value for name, value in shown.items() if value not in ("", None, [])}


def _kind(step: StepNode) -> str:
    """Return the kind of a step; a handler calls its block."""
    return "call" if step.kind == "handler" else step.kind


def _target(step: StepNode) -> str:
    """Return the target of a step whose kind alone does not say what it waits for or runs."""
    return step.target if _kind(step) in _TARGETED else ""


def _stack(run: QueriedRun) -> Iterator[str]:
    """Yield a line for each open step, with its details."""
    if run.state.closed:
        yield f"The run has closed: {run.phase}."
        return
    waits, activities = _waits(run), {each.activity_id: each for each in run.state.activities.values()}
    shown = list(open_steps(run.steps()))
    for step in shown[: 5 * _MAX_PARTS]:
        yield f"at {step.path} ({f'{_kind(step)} {_target(step)}'.strip()})"
        yield from (f"    {line}" for line in _now(run, step.path, activities, waits))
    for path in activities.keys() - {step.path for step in shown}:  # compensations, and limits of steps
        yield f"at {path} (activity {activities[path].activity_type})"
        yield from (f"    {line}" for line in _now(run, path, activities, waits))


def _now(
    run: QueriedRun, path: str, activities: dict[str, PendingActivity], waits: dict[str, list[str]]
) -> Iterator[str]:
    """Describe the current action of an open step."""
    activity = activities.get(path)
    if activity is not None:
        yield _attempt(activity)
        if activity.last_failure is not None:
            yield f"last failure: {_failure(activity.last_failure)}"
        if pods := run.pods(activity):
            yield f"pod: {pods[-1]}"
    yield from waits.get(path, ())
    timer = run.state.timers.get(path)
    if timer is not None and path not in waits:
        yield f"until {_time(timer.fire_time)}"
    yield from (
        f"child workflow {child.workflow_id}" for child in run.state.children.values() if child.child_id == path
    )


def _waits(run: QueriedRun) -> dict[str, list[str]]:
    """The awaited signals of each step."""
    waits: dict[str, list[str]] = {}
    for each in awaited(run.program, run.memory, run.state.timers):
        until = f" until {_time(each.until)}" if each.until else ""
        waits.setdefault(each.step, []).append(f"signal {each.signal}{until}")
    return waits


def _attempt(activity: PendingActivity) -> str:
    maximum = activity.retry_policy.maximum_attempts
    number = f"attempt {activity.tries}" + (f" of {maximum}" if maximum else "")
    if activity.paused and not activity.started_time:
        return f"{number}, paused"
    if activity.started_time:
        return f"{number}, running since {_time(activity.started_time)}"
    return f"{number}, starts at {_time(activity.scheduled_time)}" + (
        f" ({activity.waiting_reason})" if activity.waiting_reason else ""
    )


def _failure(failure: Failure) -> str:
    return " ".join(failure.full_message.split())[:_MAX_TEXT]


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="seconds").replace("+00:00", "Z")


# Details in the Web UI


def _metadata(run: QueriedRun, workflow_type: str) -> WorkflowMetadata:
    made = WorkflowMetadata(current_details=current_details(run))
    made.definition.type = workflow_type
    for name, description in QUERIES.items():
        if name != METADATA:
            made.definition.query_definitions.add(name=name, description=description)
    for name in sorted(known_signals(run.program) or ()):
        made.definition.signal_definitions.add(name=name)
    return made


def current_details(run: QueriedRun) -> str:
    """Describe the steps of a run, the reasons for waiting, and the commands for its logs, as Markdown."""
    done, count = progress(run.program, run.memory)
    activities = {each.activity_id: each for each in run.state.activities.values()}
    waits = _waits(run)
    lines = [f"**{run.phase}**, {done} of {count} steps done", "", *_tree(run, run.steps(), activities, waits, 0)]
    if not run.state.closed and any(waits.values()):
        signals = dict.fromkeys(each.signal for each in awaited(run.program, run.memory, run.state.timers))
        lines += ["", f"Waits for {', '.join(f'signal {_code(name)}' for name in signals)}"]
    lines += ["", "Logs", "", f"    perdure logs {run.name} -n {run.namespace}"]
    pods = [pod for activity in activities.values() for pod in run.pods(activity)[-1:]]
    lines += [f"    kubectl logs {pod} -n {run.namespace}" for pod in pods[:_MAX_PARTS]]
    if run.console_url:
        lines += ["", f"[Graph and logs]({run.console_url}/namespaces/{run.namespace}/runs/{run.name})"]
    return "\n".join(lines)


def _tree(
    run: QueriedRun,
    steps: Sequence[StepNode],
    activities: dict[str, PendingActivity],
    waits: dict[str, list[str]],
    depth: int,
) -> Iterator[str]:
    indent = "    " + "  " * depth  # four spaces make it a code block: nothing in it is Markdown or HTML
    for step in steps[:_MAX_PARTS] if depth else steps:
        what = f"{_kind(step)} {_target(step)}".strip()
        items = f", {step.closed_items} of {step.count} items done" if step.closed_items is not None else ""
        yield f"{indent}{_ICONS.get(step.state, '·')} {step.name} ({what}) {step.state}{items}"
        if step.state in {"Running", "Waiting"}:
            yield from (f"{indent}    {line}" for line in _now(run, step.path, activities, waits))
        yield from _tree(run, step.steps, activities, waits, depth + 1)
    if depth and len(steps) > _MAX_PARTS:
        yield f"{indent}… {len(steps) - _MAX_PARTS} more"


def _code(text: str) -> str:
    """The name of a signal as a code span: nothing in it is Markdown or HTML."""
    shown = " ".join(text.replace("`", "'").split())
    return f"`{shown[:_MAX_TEXT]}`" if shown else ""


class StepQueries:
    """Answers queries about the steps of runs."""

    def __init__(self, runs: RunGateway, console_url: str) -> None:
        self._runs = runs
        self._console_url = console_url

    async def answer(self, request: QueryWorkflowRequest, view: View, state: RunState) -> QueryWorkflowResponse:
        """Answer a query of a run.

        Raises:
            RpcError: The query does not exist, or the definition of the run is not valid.
        """
        query = request.query.query_type
        if query not in QUERIES:
            raise invalid(f"unknown queryType {query}: a run of a Workflow answers {', '.join(QUERIES)}")
        definition = await self._definition(view)
        entry, phase = view.entry, str((view.object.get("status") or {}).get("phase", ""))
        url = self._console_url
        run = QueriedRun(entry.name, entry.namespace, phase, definition.program, state, url)
        return QueryWorkflowResponse(query_result=answer(run, query, definition.workflow_type))

    async def _definition(self, view: View) -> Definition:
        given, snapshot = view.object["spec"], (view.object.get("status") or {}).get("definition")

        async def find() -> Definition:
            return self._runs.definitions.pinned(
                view.entry.namespace, view.entry.name, read_spec(given), given.get("inline"), snapshot
            )

        try:
            return await when_ready(find, seconds=_COMPILING_SECONDS)
        except NotYetError:
            raise unavailable("the definition of the run is being compiled; retry later") from None
        except NewerStateError as error:
            raise unavailable(message_for(str(error))) from error
        except InvalidWorkflowError as error:
            raise precondition(f"The definition that the run started with cannot be read: {error}") from error
