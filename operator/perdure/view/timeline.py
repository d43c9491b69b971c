"""Reads the times at which each step of a run waited, started its pod, and ran, from its history and its pods. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from perdure.api.labels import ATTEMPT_ANNOTATION, SCHEDULED_EVENT_ANNOTATION
from perdure.api.lenient import Json, integer, mapping, mappings, read_time
from perdure.view.logs import activity_container, activity_state
from perdure.view.recorded_steps import HistoryEntry, read_history


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSpan:
    """An attempt of an activity, or a whole step of another kind."""

    number: int | None = None
    """The number of the attempt; None for steps without attempts."""
    result: str
    """`Waiting` or `Running` while it is open; `Cached` if an earlier result was used."""
    pod: str = ""
    created: datetime | None = None
    """When its pod was created."""
    start: datetime | None = None
    """When it started to run; None if it has not started."""
    end: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpan:
    """A step of a run, from its start to its end."""

    path: str
    kind: str
    target: str
    start: datetime
    end: datetime | None
    attempts: tuple[AttemptSpan, ...]

    def phases(self, now: datetime) -> Iterator[tuple[AttemptSpan, str, datetime, datetime]]:
        """Yield the phases of each attempt, with their times.

        Args:
            now: The time; open phases end there.

        Yields:
            The attempt; `wait`, `pod start`, or `run`; begin; and end.
        """
        free = self.start
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
            for (name, begin), until in zip(known, ends, strict=True):
                yield attempt, name, begin, max(begin, until)
            free = end


def spans(run: Json, pods: Iterable[Json]) -> list[StepSpan]:
    """Read the timeline of a run.

    Args:
        run: The WorkflowRun, with its whole history in its status.
        pods: Its pods. Attempts without a pod are omitted, except for the last one, which is in the status of the run.

    Returns:
        The steps in the order in which they started.
    """
    by_event: dict[int | None, list[AttemptSpan]] = {}
    for pod in pods:
        notes = mapping(mapping(pod.get("metadata")).get("annotations"))
        attempt = _attempt(pod, str(notes.get(ATTEMPT_ANNOTATION)))
        event = str(notes.get(SCHEDULED_EVENT_ANNOTATION))
        if attempt is not None and event.isdecimal():
            by_event.setdefault(int(event), []).append(attempt)
    status = mapping(run.get("status"))
    pending = {str(each.get("step")): each for each in mappings(status.get("pendingActivities"))}
    begun = read_history(mappings(mapping(status.get("history")).get("events"))).begun.values()
    return [
        StepSpan(
            path=entry.path,
            kind=entry.kind,
            target=entry.target,
            start=entry.start,
            end=entry.end,
            attempts=tuple(_attempts(entry, by_event.get(entry.event_id, ()), pending.get(entry.path, {}))),
        )
        for entry in begun
        if entry.start is not None
    ]


def _attempts(entry: HistoryEntry, with_pods: Iterable[AttemptSpan], pending: Json) -> list[AttemptSpan]:
    """Return the attempts that have pods, with the state of the last one from the run."""
    if entry.kind != "activity":
        running = "Waiting" if entry.kind == "timer" else "Running"
        return [AttemptSpan(result=entry.ended or running, start=entry.start, end=entry.end)]
    found = sorted(with_pods, key=lambda attempt: attempt.number or 0)
    if entry.ended is None:
        start = read_time(pending.get("startedTime"))
        known = AttemptSpan(
            number=integer(pending.get("attempt")) or 1,
            result="Running" if start else "Waiting",
            pod=str(pending.get("pod") or ""),
            start=start,
        )
    elif entry.cached:
        return [*found, AttemptSpan(number=entry.attempt, result="Cached", end=entry.end)]
    else:
        known = AttemptSpan(number=entry.attempt, result=entry.ended, start=entry.last_start, end=entry.end)
    if not found:
        return [known]
    if known.number not in {None, found[-1].number}:
        return [*found, known]
    return [*found[:-1], _closed(found[-1], entry) if entry.ended else found[-1]]


def _closed(attempt: AttemptSpan, entry: HistoryEntry) -> AttemptSpan:
    return AttemptSpan(
        number=attempt.number,
        result=entry.ended or attempt.result,
        pod=attempt.pod,
        created=attempt.created,
        start=attempt.start,
        end=attempt.end or entry.end,
    )


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
        created=read_time(metadata.get("creationTimestamp")),
        start=read_time((ended or running).get("startedAt")),
        end=read_time(ended.get("finishedAt")),
    )


def as_chrome_trace(
    name: str, found: Sequence[StepSpan], start: datetime | None, end: datetime | None, now: datetime
) -> Any:
    """Write a timeline in the trace event format of Chrome, which Perfetto and speedscope read as well.

    Args:
        name: Name of the run.
        found: The steps of the run.
        start: When the run started; None if it has not started.
        end: When it ended; None if it is open.
        now: The time.
    """
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": name}}]
    if start is not None:
        events.append(_slice(name, "run", 0, (start, end or now), {}))
    for track, span in enumerate(found, 1):
        events.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": track, "args": {"name": span.path}})
        about = {"target": span.target, "result": span.attempts[-1].result}
        events.append(_slice(span.path, span.kind, track, (span.start, span.end or now), about))
        if span.kind != "activity":
            continue
        for attempt, phase, begin, until in span.phases(now):
            details = {"attempt": attempt.number, "result": attempt.result, "pod": attempt.pod}
            events.append(_slice(f"#{attempt.number} {phase}", phase, track, (begin, until), details))
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
