"""Acknowledgments of operators to workers and clients, and the check that the final histories match them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from perdure.engine import history
from perdure.frontend.messages.histories import Historian
from perdure.simulation.cluster.store import Object
from simulated.checks.run_facts import is_refused
from simulated.sdk.acknowledged_updates import AcknowledgedUpdates
from simulated.sdk.decisions import first_value
from simulated.sdk.replay import NondeterminismError, Replay


class Acknowledged:
    """Collects acknowledgments. Each one is checked against earlier ones immediately, and against the histories in the end."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        """`fail` records a violation."""
        self._fail = fail
        self._decisions: dict[tuple[str, int], bytes] = {}
        """By run and event that started the task."""
        self._results: dict[tuple[str, str], str] = {}
        """By run and activity ID."""
        self._reports: set[bytes] = set()
        """The tokens of attempts."""
        self._signals: dict[str, str] = {}
        """The workflow IDs by the values of the signals."""
        self._starts: dict[tuple[str, str], str] = {}
        """The run IDs by workflow ID and request ID."""
        self.updates = AcknowledgedUpdates(fail)
        self.resets: set[str] = set()
        """Workflow IDs that were reset: signals are copied to the new run."""

    def decided(self, run_id: str, started_event_id: int, response: bytes) -> None:
        """A decision was accepted: its commands and messages."""
        before = self._decisions.setdefault((run_id, started_event_id), response)
        if before != response:
            self._fail(f"two decisions of task {started_event_id} of run {run_id} are accepted")

    def reported(self, token: bytes) -> None:
        """A report about the end of an attempt was accepted."""
        if token in self._reports:
            self._fail(f"two reports of attempt {token.decode()} are accepted")
        self._reports.add(token)

    def returned(self, run_id: str, activity_id: str, result: str) -> None:
        """The result of an activity was accepted."""
        if (before := self._results.setdefault((run_id, activity_id), result)) != result:
            self._fail(f"results {before} and {result} of activity {activity_id} of run {run_id} are accepted")

    def signalled(self, workflow_id: str, value: str) -> None:
        """A signal was accepted."""
        self._signals[value] = workflow_id

    def started(self, workflow_id: str, request_id: str, run_id: str) -> None:
        """A start was accepted."""
        if (before := self._starts.setdefault((workflow_id, request_id), run_id)) != run_id:
            self._fail(f"one request has started runs {before} and {run_id} of {workflow_id}")

    # At the end

    def check(self, runs: Iterable[Object], events_of: Callable[[Object], list[Object]]) -> None:
        """Compare the histories of all runs with what was acknowledged, and replay those that workers have decided.

        Args:
            runs: All runs.
            events_of: Returns the stored events of a run.
        """
        signals: defaultdict[str, list[str]] = defaultdict(list)
        known = set()
        for run in runs:
            uid = run["metadata"]["uid"]
            known.add(uid)
            events = Historian("default", lambda _: "").all(history.decode_events(events_of(run)))
            found = Counter(str(value) for value in _signals(events))
            for value, times in found.items():
                signals[value].append(uid)
                if times > 1 and value.partition("/")[0] not in self.resets:  # a sender that was reset sends it again
                    self._fail(f"signal {value} is {times} times in run {run['metadata']['name']}")
            if "taskQueue" in (run["spec"].get("workflow") or {}) and not is_refused(run.get("status") or {}):
                self._replay(run["metadata"]["name"], events)
                self._check_results(uid, events)
                self._check_decisions(uid, events)
                self.updates.check(uid, events)
        self._check_signals(signals)
        if lost := {key: run_id for key, run_id in self._starts.items() if run_id not in known}:
            self._fail(f"runs were started, and do not exist: {lost}")

    def _replay(self, name: str, events: list[HistoryEvent]) -> None:
        replay = Replay()
        try:
            replay.feed(events)
            replay.finish()
        except NondeterminismError as error:
            self._fail(f"run {name} does not replay: {error}")

    def _check_results(self, uid: str, events: list[HistoryEvent]) -> None:
        names: dict[int, str] = {}
        recorded: dict[str, Any] = {}
        for event in events:
            if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                names[event.event_id] = event.activity_task_scheduled_event_attributes.activity_id
            elif event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                attributes = event.activity_task_completed_event_attributes
                recorded[names[attributes.scheduled_event_id]] = first_value(attributes.result)
        for (run_id, activity_id), result in self._results.items():
            if run_id == uid and recorded.get(activity_id) != result:
                self._fail(
                    f"activity {activity_id} of run {uid} has returned {result}, and {recorded.get(activity_id)} is recorded"
                )

    def _check_decisions(self, uid: str, events: list[HistoryEvent]) -> None:
        recorded = {
            event.workflow_task_completed_event_attributes.started_event_id
            for event in events
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        }
        for run_id, started in self._decisions:
            if run_id == uid and started not in recorded:
                self._fail(f"the decision of task {started} of run {uid} was accepted, and is not recorded")

    def _check_signals(self, recorded: dict[str, list[str]]) -> None:
        """Each accepted signal is in exactly one run, and in runs reset from it."""
        for value, workflow_id in self._signals.items():
            times = len(recorded.get(value, ()))
            if not times or (times > 1 and workflow_id not in self.resets):
                self._fail(f"signal {value} to {workflow_id} was accepted, and {times} runs have it")


def _signals(events: Iterable[HistoryEvent]) -> Iterable[Any]:
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
            yield first_value(event.workflow_execution_signaled_event_attributes.input)
