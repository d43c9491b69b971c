"""Decisions: the decider decides about events, and its commands become events.

Events wait in a queue, in the order of the history, until the decider decides about them. It does not decide while the run is
paused, before the first decision is due, during the backoff after it could not decide, and once a step has reached its limit.
A run whose history has grown too large is terminated before the next decision.
"""

from collections.abc import Mapping
from datetime import timedelta
from itertools import islice

from perdure.engine import commands as cmd
from perdure.engine import events as ev
from perdure.engine import inputs as inp
from perdure.engine.activities import Activities
from perdure.engine.decider import Decider, UndecidableError
from perdure.engine.failures import MAX_MESSAGE
from perdure.engine.ledger import Ledger
from perdure.engine.recording import event_of
from perdure.engine.retry import RetryPolicy
from perdure.engine.state import TaskFailure
from perdure.engine.tasks import WorkflowTaskMachine

MAX_EVENTS = 51_200
"""A run with a longer history is terminated."""
MAX_BYTES = 50 * 1024 * 1024
"""A run with a larger history is terminated."""
MAX_ROUNDS = 1_000
"""Maximum number of decisions of one step. A run that needs more continues in further steps, after other runs had their turn."""
MAX_WORK = 600_000
"""The limit for the cost of the decisions of one step, in the units of `Decision.work`: about 50 ms."""
_LONGEST_TASK_BACKOFF = timedelta(minutes=10)


class Decisions:
    """Decides a run during a step: by a decider in this process, or by scheduling workflow tasks for workers."""

    def __init__(
        self, ledger: Ledger, activities: Activities, decider: Decider, policies: Mapping[str, RetryPolicy] | None
    ) -> None:
        """Prepare the decisions of a step.

        Args:
            ledger: Collects the output of the step.
            activities: Closes activities that are canceled before they start.
            decider: The decider in this process; not used if workers decide.
            policies: The RetryPolicies that commands can name.
        """
        self._ledger = ledger
        self._activities = activities
        self._decider = decider
        self._policies = policies
        self._stopped = False
        self._rounds = 0
        self._work = 0
        self.tasks = WorkflowTaskMachine(ledger, self._record) if ledger.state.code is not None else None
        """The workflow task; None if the decider runs in this process."""
        ledger.tasks = self.tasks

    def decide(self) -> None:
        """Let the decider decide about all pending events, as far as this is possible now."""
        _terminate_oversized(self._ledger)
        if self.tasks is not None:
            self.tasks.schedule_if_needed()
            return
        while not self._stopped and self._is_needed():
            task = self._ledger.state.task
            if task is not None and task.next_attempt_time > self._ledger.now and not self._ledger.has_new_events:
                break
            self._decide_next()
            _terminate_oversized(self._ledger)

    @property
    def stopped_early(self) -> bool:
        """Whether the step has reached its limit although more can be decided immediately."""
        return self.tasks is None and self._stopped and self._ledger.state.task is None and self._is_needed()

    def _is_needed(self) -> bool:
        """Whether a decision is pending, and the run is neither waiting nor paused."""
        first = self._ledger.state.first_decision_time
        waits = self._ledger.state.paused is not None or (first is not None and first > self._ledger.now)
        return self._ledger.open() and not waits and bool(self._ledger.state.unfinished or self._ledger.queue)

    def _decide_next(self) -> None:
        """Let the decider decide about the next event, and record all of its commands, or none if it cannot decide."""
        ledger = self._ledger
        event = None if ledger.state.unfinished else ledger.queue[0]
        suggested = event is not None and ledger.state.suggests_continue_as_new(event)
        before = ledger.state
        lengths = [(appended, len(appended)) for appended in (ledger.events, ledger.retired, ledger.queue)]
        try:
            decision = self._decider.decide(before.memory, event, continue_as_new_suggested=suggested)
            ledger.change(memory=decision.memory, unfinished=decision.more, task=None)
            for command in decision.commands:
                self._record(command, behind=0 if event is None else 1)
        except UndecidableError as error:
            ledger.state = before
            for appended, length in lengths:
                while len(appended) > length:
                    appended.pop()
            self._back_off(str(error), error.reason)
        else:
            if event is not None:
                ledger.queue.popleft()
            self._rounds += 1
            self._work += decision.work
            self._stopped = decision.more or self._work > MAX_WORK or self._rounds >= MAX_ROUNDS
        ledger.durable = True

    def _back_off(self, message: str, reason: str = "") -> None:
        """Record that the decider could not decide. It is retried after a backoff, or when something else happens."""
        attempt = self._ledger.state.task.attempt + 1 if self._ledger.state.task else 1
        backoff = min(timedelta(seconds=2 ** min(attempt, 10)), _LONGEST_TASK_BACKOFF)
        self._ledger.change(
            task=TaskFailure(
                attempt=attempt,
                message=message[:MAX_MESSAGE],
                reason=reason,
                next_attempt_time=self._ledger.now + backoff,
            )
        )
        self._stopped = True

    def _record(self, command: cmd.Command, *, behind: int = 0) -> None:
        """Record a command. `behind`: the number of events at the head of the queue that the decision covers."""
        ledger = self._ledger
        if not ledger.open():
            raise UndecidableError("invalid command sequence: a command follows the one that closes the run")
        waiting = self.tasks.buffered if self.tasks else islice(ledger.queue, behind, None)
        event = event_of(command, ledger.state, ledger.now, waiting, self._policies)
        if event is None:
            return
        if self.tasks is not None:
            event = self.tasks.attributed(event)
        if isinstance(event, ev.CLOSING):
            ledger.close(event)
            return
        ledger.emit(event, decide=False)
        if isinstance(event, ev.ActivityTaskCancelRequested):
            activity = ledger.state.activity(event.scheduled_event_id)
            if activity is not None and activity.started_time is None:
                self._activities.cancel_unstarted(activity)


def _terminate_oversized(ledger: Ledger) -> None:
    """Terminate a run whose history has grown too large, as Temporal's server does."""
    state = ledger.state
    if ledger.open() and (state.next_event_id > MAX_EVENTS + 1 or state.history_size > MAX_BYTES):
        reason = (
            f"the history has {state.next_event_id - 1:,} events and {state.history_size:,} bytes, more than "
            f"the {MAX_EVENTS:,} events or {MAX_BYTES // 2**20} MiB that a run can have: use `continueAsNew` "
            "before it reaches this limit"
        )
        ledger.close(ev.WorkflowExecutionTerminated(reason=reason, identity=inp.OPERATOR, **ledger.position))
