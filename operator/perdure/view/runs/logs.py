"""Finds logs: attempts with a pod, and attempts whose pod no longer exists. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.api.json_values import Json, mapping, mappings
from perdure.api.labels import ATTEMPT_ANNOTATION, SCHEDULED_EVENT_ANNOTATION
from perdure.api.phases import Phase
from perdure.view.runs.run import RunView
from perdure.view.runs.steps import StepView

_FAILED = frozenset({"Failed", "TimedOut"})
"""The states of a step whose last attempt has failed."""
_INDEX = re.compile(r"\[\d+: ")
"""The index in the title of an item that has a label."""
_ITEM = re.compile(r"\[\d+\]")
"""The index of an item in the path of a step."""
_STEP = "PERDURE_ACTIVITY_ID"
"""The variable with the path of the step, which only the containers of the activity have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLog:
    """The log of an attempt."""

    run: str
    """Name of the run."""
    step: str
    """Path of the step."""
    attempt: int
    pod: str
    """Name of the pod."""
    label: str = ""
    """The name of the step for users, with the values of items; empty for the path."""
    container: str = ""
    """The most relevant container: the activity's own, or a failed init container."""
    shows_container: bool = False
    """Whether the title contains the container: an init container, or one of several of the activity."""
    readable: bool = False
    """Whether the container has started."""
    ended: bool = False
    """Whether the container has ended."""
    failed: bool = False
    """Whether the attempt has failed."""
    waits: bool = False
    """Whether its containers may still start."""
    end: str = ""
    """The end of the log, as the failure of the attempt has it; only if the pod no longer exists."""
    order: tuple[str, int, int] = ("", 0, 0)
    """The sort key of attempts by start time."""

    def title(self, *, with_run: bool = False) -> str:
        """The prefix of its lines, such as `charge#2`."""
        container = f"/{self.container}" if self.shows_container else ""
        return f"{f'{self.run}/' if with_run else ''}{self.label or self.step}#{self.attempt}{container}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelection:
    """The selected logs."""

    steps: Sequence[str] = ()
    """Paths of steps, which include the steps inside them; empty: all steps."""
    attempt: int | None = None
    failed: bool = False

    def matches(self, log: AttemptLog) -> bool:
        """Whether a log is selected."""
        named = not self.steps or any(
            is_part_of(each, step) for each in names_of(log.step, log.label) for step in self.steps
        )
        return named and self.attempt in {None, log.attempt} and (log.failed or not self.failed)


def names_of(path: str, title: str) -> tuple[str, str]:
    """Return the names of a step in options: its path, and its path with values in place of indexes, `train[lr=0.1]/fit`."""
    return path, _INDEX.sub("[", title)


def is_in_closed_loop(path: str, run: Mapping[str, Any]) -> bool:
    """Whether a step is in an item of a loop that has closed, so that only the history has the value of the item.

    Args:
        path: The path of the step.
        run: The WorkflowRun.
    """
    state = mapping(mapping(run.get("status")).get("state"))
    loops = mapping(mapping(state.get("memory")).get("loops"))
    return any(path[: item.start()] not in loops for item in _ITEM.finditer(path))


def is_part_of(path: str, step: str) -> bool:
    """Whether a step is the same as another one, an item of it, or in a block of it."""
    return path == step or path.startswith((f"{step}/", f"{step}["))


def logs_of(run: RunView, pods: Iterable[Json]) -> list[AttemptLog]:
    """Find the logs of a run's pods.

    Args:
        run: The run.
        pods: Its pods.

    Returns:
        The logs, the oldest attempt first, without pods that belong to no attempt.
    """
    steps, titles = {step.path: step for step in run.every_step()}, run.titles
    found = [
        replace(
            log, failed=log.failed or _attempt_failed(log, steps.get(log.step), run), label=titles.get(log.step, "")
        )
        for pod in pods
        for log in _logs_in(run.name, pod)
    ]
    return sorted(found, key=lambda log: log.order)


def _attempt_failed(log: AttemptLog, step: StepView | None, run: RunView) -> bool:
    """Whether the history says that an attempt has failed, which its pod does not show after a timeout."""
    if step is None:
        return False
    if step.attempt is not None and log.attempt != step.attempt:
        return log.attempt < step.attempt
    return step.state in _FAILED or bool(step.failure) or (step.state == "Stopped" and run.phase == Phase.TIMED_OUT)


def missing_logs(run: RunView, pods: Iterable[Json]) -> Iterator[AttemptLog]:
    """Find the attempts whose pods no longer exist.

    Args:
        run: The run.
        pods: The existing pods.

    Yields:
        The description of the missing log.
    """
    there = {str(mapping(pod.get("metadata")).get("name")) for pod in pods}
    titles = run.titles
    for step in run.every_step():
        for number, pod in enumerate(step.pods, 1):
            last = number == len(step.pods)
            if pod in there or (last and step.open is not None and step.state not in {"BackingOff", "Running"}):
                continue  # the pod of an open attempt does not exist yet
            log = AttemptLog(run=run.name, step=step.path, label=titles[step.path], attempt=number, pod=pod)
            end = _end_of_log(step.failure or step.last_failure) if last else ""
            yield replace(log, failed=_attempt_failed(log, step, run), end=end)


def _end_of_log(failure: Json | None) -> str:
    """Return the end of the log that a failure, or one of its causes, has."""
    node = mapping(failure)
    while node and not node.get("log"):
        node = mapping(node.get("cause"))
    return str(node.get("log") or "")


def may_have_had_pods(run: RunView) -> bool:
    """Whether steps of a run may have started pods that neither the history nor the cluster shows.

    The history of a run that was closed from outside does not have the attempts of its open activities.
    """
    return run.closed and any(
        step.kind == "activity" and step.start is not None and step.attempt is None and not step.task_queue
        for step in run.every_step()
    )


def earlier_logs(run: RunView, name: str, pods: Iterable[Json]) -> Iterator[AttemptLog]:
    """Find the logs of the steps that ran in an earlier run.

    Args:
        run: The run that has kept their results.
        name: Name of the earlier run.
        pods: The pods of the earlier run.

    Yields:
        The logs; for a step that has no pod any more, one without a pod.
    """
    steps = [step for step in run.every_step() if step.earlier_run == name and step.kind == "activity"]
    titles = run.titles
    found: dict[str, list[AttemptLog]] = {step.path: [] for step in steps if not step.steps and not step.task_queue}
    for log in sorted((log for pod in pods for log in _logs_in(name, pod)), key=lambda log: log.order):
        if log.step in found:
            found[log.step].append(replace(log, label=titles[log.step]))
    for step in steps:
        if step.path in found:
            gone = AttemptLog(
                run=name,
                step=step.path,
                label=titles[step.path],
                attempt=step.attempt or 1,
                pod="",
                failed=step.state == "Failed",
            )
            yield from found[step.path] or [gone]


def _logs_in(run: str, pod: Json) -> Iterator[AttemptLog]:
    """Find the logs of an attempt: of the containers of the activity, or of an init container that failed before them."""
    metadata, status = mapping(pod.get("metadata")), mapping(pod.get("status"))
    notes = mapping(metadata.get("annotations"))
    attempt, event = str(notes.get(ATTEMPT_ANNOTATION)), str(notes.get(SCHEDULED_EVENT_ANNOTATION))
    containers = _activity_containers(pod)
    if not attempt.isdecimal() or not event.isdecimal():
        return
    broken = next(filter(_has_failed, mappings(status.get("initContainerStatuses"))), None)
    ended = status.get("phase") in {"Succeeded", "Failed"} or bool(metadata.get("deletionTimestamp"))
    states = [_state_of(pod, each) for each in containers]
    init = broken is not None and not any({"running", "terminated"} & state.keys() for state in states)
    for each, state in list(zip(containers, states, strict=True))[: 1 if init else None]:
        started = bool({"running", "terminated"} & state.keys())
        yield AttemptLog(
            run=run,
            step=_variable(each, _STEP).replace("$$", "$"),
            attempt=int(attempt),
            pod=str(metadata.get("name")),
            container=str((broken if init and broken else each).get("name")),
            shows_container=init or len(containers) > 1,
            readable=started or init,
            ended=init or "terminated" in state,
            failed=init or status.get("phase") == "Failed" or bool(mapping(state.get("terminated")).get("exitCode")),
            waits=not (started or init or ended),
            order=(str(metadata.get("creationTimestamp") or ""), int(event), int(attempt)),
        )


def activity_container(pod: Json) -> Json | None:
    """Return the activity's container in a pod, which returns the result; None if the pod is not an attempt."""
    return next(iter(_activity_containers(pod)), None)


def activity_state(pod: Json) -> Json:
    """Return the state of the activity's container; empty if it has no state yet."""
    return _state_of(pod, activity_container(pod) or {})


def _activity_containers(pod: Json) -> list[Json]:
    containers = mappings(mapping(pod.get("spec")).get("containers"))
    return [each for each in containers if _variable(each, _STEP)]


def _state_of(pod: Json, container: Json) -> Json:
    statuses = mappings(mapping(pod.get("status")).get("containerStatuses"))
    return next((mapping(each.get("state")) for each in statuses if each.get("name") == container.get("name")), {})


def _variable(container: Json, name: str) -> str:
    return next(
        (str(each.get("value") or "") for each in mappings(container.get("env")) if each.get("name") == name), ""
    )


def _has_failed(container: Json) -> bool:
    return bool(mapping(mapping(container.get("state")).get("terminated")).get("exitCode"))


class LogLines:
    """The lines of one log, each once, even if the log is read again from its last line."""

    def __init__(self, *, timestamps: bool, pattern: re.Pattern[str] | None) -> None:
        self._timestamps = timestamps
        self._pattern = pattern
        self._at_last = 0
        self._skip = 0
        self.last = ""
        """The timestamp of the last line from the node; empty before the first line."""

    def resume(self) -> None:
        """Prepare to read the log again from the second of the last line."""
        self._skip = self._at_last

    def accept(self, raw: bytes) -> str | None:
        """Return the text of a line to show.

        Args:
            raw: The line from the API server, with its timestamp.

        Returns:
            The text; None for a line that was shown before, or that does not match.
        """
        time, _, text = raw.decode(errors="replace").rstrip("\r").partition(" ")
        if not _TIME.fullmatch(time):  # a part of a very long line, or a message of the node
            time, text = "", f"{time} {text}" if text else time
        elif time < self.last:
            return None
        elif time > self.last:
            self.last, self._at_last, self._skip = time, 1, 0
        elif self._skip:
            self._skip -= 1
            return None
        else:
            self._at_last += 1
        if not self.matches(text):
            return None
        return f"{time} {text}" if self._timestamps and time else text

    def matches(self, text: str) -> bool:
        """Whether a line is selected."""
        return self._pattern is None or self._pattern.search(text) is not None


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*")
