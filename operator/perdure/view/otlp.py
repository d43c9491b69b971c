"""Writes the timeline of a closed run as a trace of OpenTelemetry, in the JSON format of its protocol (OTLP). Pure.

All IDs follow from the run, so a second export repeats the same spans, and other spans can refer to them. The ID of the trace is
that of the run, and the ID of the span of the whole run is its first half.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from perdure import __version__
from perdure.view.facts import ShownRun
from perdure.view.phases import RunPhase
from perdure.view.timeline import AttemptSpan, StepSpan

_INTERNAL = 1
_OK, _ERROR = 1, 2
_WELL = {RunPhase.COMPLETED, RunPhase.CONTINUED_AS_NEW}
_STOPPED = "Stopped"
"""The result of a step that was open when its run ended."""


def as_otlp(run: ShownRun, steps: Sequence[StepSpan], parent_run_id: str | None = None) -> dict[str, Any]:
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

    def __init__(self, run: ShownRun) -> None:
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
        whole = self._span(self._root, name, (self._start, self._end), about)
        whole["status"] = {"code": _OK} if run.phase in _WELL else {"code": _ERROR, "message": run.phase}
        if parent_run_id:
            trace = UUID(parent_run_id).hex
            whole["links"] = [{"traceId": trace, "spanId": _root_of(trace)}]
        yield whole
        for number, step in enumerate(steps):
            yield from self._of_step(step, str(number))

    def _of_step(self, step: StepSpan, key: str) -> Iterator[dict[str, Any]]:
        about = {"step": step.path, "kind": step.kind, "target": step.target}
        last = _STOPPED if step.end is None else step.attempts[-1].result
        times = (step.start, step.end or self._end)
        yield self._span(self._id(key), step.path, times, about, parent=self._root, result=last)
        if step.kind != "activity":
            return
        marks: dict[int, list[tuple[str, datetime, datetime]]] = {}
        for attempt, name, begin, until in step.phases(self._end):
            marks.setdefault(step.attempts.index(attempt), []).append((name, begin, until))
        for index, phases in marks.items():
            attempt = step.attempts[index]
            yield self._of_attempt(step, attempt, f"{key}/{attempt.number}", self._id(key), phases)

    def _of_attempt(
        self, step: StepSpan, attempt: AttemptSpan, key: str, parent: str, phases: list[tuple[str, datetime, datetime]]
    ) -> dict[str, Any]:
        about = {"step": step.path, "attempt": attempt.number, "pod": attempt.pod}
        result = _STOPPED if attempt.end is None and step.end is None else attempt.result
        times = (phases[0][1], phases[-1][2])
        span = self._span(self._id(key), f"RunActivity:{step.target}", times, about, parent=parent, result=result)
        span["events"] = [{"name": name, "timeUnixNano": _nanoseconds(begin)} for name, begin, _ in phases]
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
