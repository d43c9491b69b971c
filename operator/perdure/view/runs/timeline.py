"""The timeline of a run: when each step waited, started its pod, and ran, from the tree of its steps and its pods.

It is shown as text with a bar for each attempt, in the trace event format of Chrome, or, for a closed run, as a trace of
OpenTelemetry in the JSON format of its protocol (OTLP). All IDs of such a trace follow from the run, so a second export repeats
the same spans, and other spans can refer to them: the ID of the trace is that of the run, and the ID of the span of the whole
run is its first half.

What a step is, and when it started and ended, is from the tree, as everywhere else. Only pods know the attempts of an activity;
of an attempt without a pod, the run only knows the last one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from rich.cells import cell_len
from rich.text import Text

from perdure import __version__
from perdure.api.json_values import Json, integer, mapping
from perdure.api.labels import ATTEMPT_ANNOTATION, SCHEDULED_EVENT_ANNOTATION
from perdure.api.phases import Phase
from perdure.api.times import read_kubernetes_time
from perdure.language.step_paths import title
from perdure.view import tables, text
from perdure.view.page import Page
from perdure.view.runs.history import HistoryEntry
from perdure.view.runs.logs import activity_container, activity_state
from perdure.view.runs.run import RunView
from perdure.view.runs.steps import StepView


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpan:
    """An attempt of an activity, or a whole step of another kind."""

    number: int | None = None
    """The number of the attempt; None for steps without attempts."""
    result: str
    """`Waiting` or `Running` while it is open; `Cached` if an earlier result was used; otherwise, as in the tree."""
    pod: str = ""
    created: datetime | None = None
    """When its pod was created."""
    start: datetime | None = None
    """When it started to run; None if it has not started."""
    end: datetime | None = None


Phases = dict[str, tuple[datetime, datetime]]
"""The begin and end of `wait`, `pod start`, and `run`, in this order, as far as an attempt has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpan:
    """A step of a run, from its start to its end."""

    path: str
    name: str
    """The name of the step for users."""
    kind: str
    target: str
    start: datetime
    end: datetime | None
    event_id: int
    """ID of the event that scheduled it."""
    scheduled: datetime
    """When that was: a step may run a block before its activity."""
    attempts: tuple[AttemptSpan, ...]

    def phases(self, now: datetime) -> Iterator[tuple[AttemptSpan, Phases]]:
        """Yield each attempt and its phases.

        Args:
            now: The time; open phases end there.
        """
        free = self.scheduled
        for attempt in self.attempts:
            marks = [
                ("wait", free if self.kind == "activity" else None),
                ("pod start", attempt.created),
                ("run", attempt.start),
            ]
            # The times of pods are truncated to whole seconds: keep them in order.
            known = [(name, max(time, free)) for name, time in marks if time is not None]
            end = max(attempt.end or now, free)
            ends = [time for _, time in known[1:]] + [end]
            yield attempt, {name: (begin, max(begin, until)) for (name, begin), until in zip(known, ends, strict=True)}
            free = end


def spans(run: RunView, pods: Iterable[Json]) -> list[StepSpan]:
    """Read the timeline of a run.

    Args:
        run: The run, read with its whole history.
        pods: Its pods. Attempts without a pod are omitted, except for the last one, which the run knows.

    Returns:
        The steps that wait for something, in the order in which they started: activities, timers, children, and the like.
    """
    by_event: dict[int, list[AttemptSpan]] = {}
    for pod in pods:
        notes = mapping(mapping(pod.get("metadata")).get("annotations"))
        attempt = _attempt(pod, str(notes.get(ATTEMPT_ANNOTATION)))
        event = str(notes.get(SCHEDULED_EVENT_ANNOTATION))
        if attempt is not None and event.isdecimal():
            by_event.setdefault(int(event), []).append(attempt)
    found = [
        StepSpan(
            path=step.path,
            name=title(step.path) if run.code is None else run.name_of(step),
            kind=step.kind,
            target=step.target,
            start=step.start,
            end=step.end,
            attempts=tuple(_attempts(step, step.recorded, by_event.get(step.recorded.event_id or 0, ()))),
            event_id=step.recorded.event_id or 0,
            scheduled=step.recorded.start or step.start,
        )
        for step in run.every_step()
        if step.recorded is not None and step.start is not None
    ]
    return sorted(found, key=lambda span: span.event_id)


def _attempts(step: StepView, recorded: HistoryEntry, with_pods: Iterable[AttemptSpan]) -> list[AttemptSpan]:
    """Return the attempts that have pods, with the state of the last one from the run."""
    if step.kind != "activity":
        return [AttemptSpan(result=step.state, start=step.start, end=step.end)]
    found = sorted(with_pods, key=lambda attempt: attempt.number or 0)
    if recorded.cached:
        return [*found, AttemptSpan(number=recorded.attempt, result="Cached", end=recorded.end)]
    if step.open is not None:
        start = step.open.started
        state = "Running" if start else "Waiting"
        last = AttemptSpan(number=step.open.attempt, result=state, pod=step.open.pod or "", start=start)
    else:
        number = recorded.attempt or (found[-1].number if found else 1)
        # A hook or a `catch` may end the step later than its activity. No event records that the end of the run stops it.
        result, end = (recorded.ended, recorded.end) if recorded.ended else (step.state, step.end)
        last = AttemptSpan(number=number, result=result, start=recorded.last_start, end=end)
    if not found or last.number != found[-1].number:
        return [*found, last]
    if step.open is not None:
        return found
    return [*found[:-1], replace(found[-1], result=last.result, end=found[-1].end or last.end)]


def _attempt(pod: Json, number: str) -> AttemptSpan | None:
    if activity_container(pod) is None or not number.isdecimal():
        return None
    metadata, state = mapping(pod.get("metadata")), activity_state(pod)
    ended, running = mapping(state.get("terminated")), mapping(state.get("running"))
    result = "Running" if running else "Waiting"
    if ended:
        result = "Failed" if integer(ended.get("exitCode")) else "Succeeded"
    elif mapping(pod.get("status")).get("phase") == "Failed":
        result = "Failed"
    return AttemptSpan(
        number=int(number),
        result=result,
        pod=str(metadata.get("name") or ""),
        created=read_kubernetes_time(metadata.get("creationTimestamp")),
        start=read_kubernetes_time((ended or running).get("startedAt")),
        end=read_kubernetes_time(ended.get("finishedAt")),
    )


def as_chrome_trace(
    name: str, steps: Sequence[StepSpan], start: datetime | None, end: datetime | None, now: datetime
) -> Any:
    """Write a timeline in the trace event format of Chrome, which Perfetto and speedscope read as well.

    Args:
        name: Name of the run.
        steps: The steps of the run.
        start: When the run started; None if it has not started.
        end: When it ended; None if it is open.
        now: The time.
    """
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": name}}]
    if start is not None:
        events.append(_slice(name, "run", 0, (start, end or now), {}))
    for track, span in enumerate(steps, 1):
        events.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": track, "args": {"name": span.name}})
        about = {"target": span.target, "result": span.attempts[-1].result}
        events.append(_slice(span.name, span.kind, track, (span.start, span.end or now), about))
        if span.kind != "activity":
            continue
        for attempt, phases in span.phases(now):
            details = {"attempt": attempt.number, "result": attempt.result, "pod": attempt.pod}
            for phase, times in phases.items():
                events.append(_slice(f"#{attempt.number} {phase}", phase, track, times, details))
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _slice(name: str, kind: str, track: int, times: tuple[datetime, datetime], about: dict[str, Any]) -> dict[str, Any]:
    begin, until = (round(time.timestamp() * 1_000_000) for time in times)
    args = {key: value for key, value in about.items() if value not in {"", None}}
    return {
        "ph": "X",
        "name": name,
        "cat": kind,
        "pid": 1,
        "tid": track,
        "ts": begin,
        "dur": until - begin,
        "args": args,
    }


# As text

_HEADINGS = ("STEP", "ATTEMPT", "PHASE", "START", "WAIT", "POD", "RUN")
_PHASES = ("wait", "pod start", "run")
_NARROWEST, _WIDEST = 20, 60


def timeline_lines(spans: Sequence[StepSpan], start: datetime, end: datetime, page: Page) -> Iterator[Text]:
    """Show the timeline of a run.

    Args:
        spans: The steps of the run.
        start: When the run started.
        end: When the run ended, or the current time.
        page: The page for the output.

    Yields:
        Lines; the first one is the heading.
    """
    rows = [row for span in spans for row in _rows(span, start, page)]
    taken = sum(max(cell_len(cells[i]) for cells in (_HEADINGS, *(cells for cells, _ in rows))) for i in range(7))
    width = min(max(page.width - taken - 2 * len(_HEADINGS), _NARROWEST), _WIDEST)
    marks = page.glyphs.bars
    cells = [[*row, _bar(times, (start, end), width, marks)] for row, times in rows]
    yield from tables.table((*_HEADINGS, "TIMELINE"), cells, page)
    yield Text(f"{marks[0]} wait  {marks[1]} pod start  {marks[2]} run", style="dim")


def _rows(span: StepSpan, start: datetime, page: Page) -> Iterator[tuple[list[str], Phases]]:
    """Yield the cells of each attempt, and its phases."""
    for index, (attempt, times) in enumerate(span.phases(page.now)):
        name = span.name if not index else ""
        first = min(begin for begin, _ in times.values())
        lengths = [_length(times[phase]) if phase in times else "" for phase in _PHASES]
        number = "" if attempt.number is None else f"#{attempt.number}"
        yield [name, number, attempt.result, page.since(first, start), *lengths], times


def _length(times: tuple[datetime, datetime]) -> str:
    return text.duration(times[1] - times[0])


def _bar(times: Phases, period: tuple[datetime, datetime], width: int, marks: str) -> str:
    """Draw phases to scale, with at least one character for each."""
    start, total = period[0], max(period[1] - period[0], timedelta(milliseconds=1))
    bar = [marks[3]] * width
    for phase, mark in zip(_PHASES, marks, strict=False):
        if phase not in times:
            continue
        first, last = ((time - start) / total * width for time in times[phase])
        left = min(max(int(first), 0), width - 1)
        if times[phase][1] > times[phase][0]:
            bar[left : max(round(last), left + 1)] = mark * (min(max(round(last), left + 1), width) - left)
    return "".join(bar)


# As a trace of OpenTelemetry

_INTERNAL = 1
_OK, _ERROR = 1, 2
_WELL = {Phase.COMPLETED, Phase.CONTINUED_AS_NEW}


def as_otlp(run: RunView, steps: Sequence[StepSpan], parent_run_id: str | None = None) -> dict[str, Any]:
    """Write the trace of a closed run.

    Args:
        run: The run, which has started and ended.
        steps: Its steps.
        parent_run_id: ID of the parent of the run; None if it has none.
    """
    resource = {"service.name": "perdure", "k8s.namespace.name": run.namespace}
    scope = {"name": "perdure", "version": __version__}
    spans = list(_Spans(run).all(steps, parent_run_id))
    return {
        "resourceSpans": [
            {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [{"scope": scope, "spans": spans}]}
        ]
    }


class _Spans:
    """The spans of one run."""

    def __init__(self, run: RunView) -> None:
        assert run.start is not None, "the run has started"
        assert run.end is not None, "the run has ended"
        self._run, self._start, self._end = run, run.start, run.end
        self._trace = UUID(run.uid).hex
        self._root = _root_of(self._trace)

    def all(self, steps: Sequence[StepSpan], parent_run_id: str | None) -> Iterator[dict[str, Any]]:
        """Yield the span of the run, and those of its steps and their attempts."""
        run = self._run
        about = {"run": run.name, "workflow": run.workflow, "workflow_id": run.workflow_id, "phase": run.phase}
        name = run.activity or run.operation or f"RunWorkflow:{run.workflow or run.name}"
        root = self._span(self._root, name, (self._start, self._end), about)
        root["status"] = {"code": _OK} if run.phase in _WELL else {"code": _ERROR, "message": run.phase}
        if parent_run_id:
            trace = UUID(parent_run_id).hex
            root["links"] = [{"traceId": trace, "spanId": _root_of(trace)}]
        yield root
        for number, step in enumerate(steps):
            yield from self._of_step(step, str(number))

    def _of_step(self, step: StepSpan, key: str) -> Iterator[dict[str, Any]]:
        about = {"step": step.path, "kind": step.kind, "target": step.target}
        times = (step.start, step.end or self._end)
        yield self._span(self._id(key), step.name, times, about, parent=self._root, result=step.attempts[-1].result)
        if step.kind != "activity":
            return
        for attempt, phases in step.phases(self._end):
            yield self._of_attempt(step, attempt, f"{key}/{attempt.number}", self._id(key), phases)

    def _of_attempt(
        self, step: StepSpan, attempt: AttemptSpan, key: str, parent: str, phases: Phases
    ) -> dict[str, Any]:
        about = {"step": step.path, "attempt": attempt.number, "pod": attempt.pod}
        times = (next(iter(phases.values()))[0], next(reversed(phases.values()))[1])
        span = self._span(
            self._id(key), f"RunActivity:{step.target}", times, about, parent=parent, result=attempt.result
        )
        span["events"] = [{"name": name, "timeUnixNano": _nanoseconds(begin)} for name, (begin, _) in phases.items()]
        return span

    def _span(
        self,
        span_id: str,
        name: str,
        times: tuple[datetime, datetime],
        about: dict[str, Any],
        *,
        parent: str = "",
        result: str = "",
    ) -> dict[str, Any]:
        begin, end = times
        attributes = {f"perdure.{key}": value for key, value in {**about, "result": result}.items()}
        return {
            "traceId": self._trace,
            "spanId": span_id,
            **({"parentSpanId": parent} if parent else {}),
            "name": name,
            "kind": _INTERNAL,
            "startTimeUnixNano": _nanoseconds(begin),
            "endTimeUnixNano": _nanoseconds(max(begin, end)),
            "attributes": _attributes(attributes),
            **({"status": {"code": _ERROR}} if result == "Failed" else {}),
        }

    def _id(self, key: str) -> str:
        return sha256(f"{self._trace}/{key}".encode()).hexdigest()[:16]


def _root_of(trace: str) -> str:
    """Return the ID of the span of a whole run, from the ID of its trace."""
    return trace[:16]


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in values.items()
        if value not in {None, ""}
    ]


def _nanoseconds(time: datetime) -> str:
    return str(round(time.timestamp() * 1_000_000) * 1_000)
