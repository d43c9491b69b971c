"""The order of events that SDKs require: they reject a workflow whose history violates it."""

from collections.abc import Iterator, Sequence

from perdure.simulation.cluster.store import Object

ACTIVITY_CLOSED = frozenset(f"ActivityTask{how}" for how in ("Completed", "Failed", "TimedOut", "Canceled"))
_OPENS = {
    "ActivityTaskScheduled": "activity",
    "TimerStarted": "timer",
    "StartChildWorkflowExecutionInitiated": "child",
    "SignalExternalWorkflowExecutionInitiated": "signal",
    "RequestCancelExternalWorkflowExecutionInitiated": "cancellation",
}
"""Events that open something, which later events name by their ID."""
_STARTS = {"ActivityTaskStarted": "activity", "ChildWorkflowExecutionStarted": "child"}
_ENDS = {
    **dict.fromkeys(ACTIVITY_CLOSED, "activity"),
    **{f"Timer{how}": "timer" for how in ("Fired", "Canceled")},
    **{
        f"ChildWorkflowExecution{how}": "child" for how in ("Completed", "Failed", "TimedOut", "Canceled", "Terminated")
    },
    "StartChildWorkflowExecutionFailed": "child",
    "ExternalWorkflowExecutionSignaled": "signal",
    "SignalExternalWorkflowExecutionFailed": "signal",
    "ExternalWorkflowExecutionCancelRequested": "cancellation",
    "RequestCancelExternalWorkflowExecutionFailed": "cancellation",
}
_REFERENCES = {"activity": "scheduledEventId", "timer": "startedEventId"}
"""The field that names what an event is about; `initiatedEventId` for the rest."""
_TASK_ENDS = frozenset({"WorkflowTaskCompleted", "WorkflowTaskFailed", "WorkflowTaskTimedOut"})


def problems(history: Sequence[Object]) -> Iterator[str]:
    """Describe everything in a history that an SDK rejects."""
    yield from _problems_of_items(history)
    yield from _problems_of_tasks(history)
    yield from _repeated_signals(history)


def _problems_of_items(history: Sequence[Object]) -> Iterator[str]:
    """Each activity, timer, child and request is started at most once, and ends at most once, after its start."""
    opened: dict[int, str] = {}
    started: dict[int, int] = {}
    ended: set[int] = set()
    for event in history:
        number, type_ = int(event["eventId"]), event["eventType"]
        for child in _restarted(history, event):
            started.pop(child, None)
        if type_ in _OPENS:
            opened[number] = _OPENS[type_]
            continue
        what = _STARTS.get(type_) or _ENDS.get(type_)
        if what is None:
            continue
        about = int(event.get(_REFERENCES.get(what, "initiatedEventId"), 0))
        if opened.get(about) != what:
            yield f"has {type_} {number} of {what} {about}, which no event opens"
        elif about in ended:
            yield f"has {type_} {number} after the end of {what} {about}"
        elif type_ in _STARTS and about in started:
            yield f"has {type_} {number} of {what} {about}, which event {started[about]} has started"
        if type_ in _STARTS:
            started[about] = number
            continue
        ended.add(about)
        if what in _STARTS.values() and int(event.get("startedEventId", 0)) != started.get(about, 0):
            yield f"has {type_} {number} that names another start than {started.get(about, 0)}"


def _restarted(history: Sequence[Object], reset: Object) -> Iterator[int]:
    """The children that have a second start event after a reset. Code, whose SDK would reject it, has none."""
    if not history[0].get("taskQueue"):
        yield from map(int, reset.get("restartedChildren") or ())


def _problems_of_tasks(history: Sequence[Object]) -> Iterator[str]:
    """Workflow tasks are scheduled, started and ended in turn."""
    scheduled = started = 0
    for event in history:
        number, type_ = int(event["eventId"]), event["eventType"]
        if type_ == "WorkflowTaskScheduled":
            if scheduled:
                yield f"has {type_} {number} while task {scheduled} is open"
            scheduled, started = number, 0
        elif type_ == "WorkflowTaskStarted":
            if started or int(event["scheduledEventId"]) != scheduled:
                yield f"has {type_} {number}, and the open task is {scheduled}, started by {started}"
            started = number
        elif type_ in _TASK_ENDS:
            named = int(event.get("scheduledEventId", 0)), int(event.get("startedEventId", 0))
            if event.get("cause") != "ResetWorkflow" and named != (scheduled, started):
                yield f"has {type_} {number} of task {named}, and {(scheduled, started)} is open"
            scheduled = started = 0


def _repeated_signals(history: Sequence[Object]) -> Iterator[str]:
    """A repeated signal request is recorded once."""
    known: dict[str, int] = {}
    for event in history:
        request = event.get("requestId", "")
        if event["eventType"] != "WorkflowExecutionSignaled" or not request:
            continue
        if request in known:
            yield f"has signal {request} twice: {known[request]}, {event['eventId']}"
        known[request] = int(event["eventId"])
