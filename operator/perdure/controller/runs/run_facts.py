"""The facts in a run's status in addition to its state: progress, reasons for waiting, unserved task queues."""

from datetime import datetime

from perdure.controller.runs import run_status
from perdure.controller.runs.effects.run_effects import Effects
from perdure.controller.runs.first_event import Idle, Pointer
from perdure.controller.runs.run_conditions import lacks_worker
from perdure.controller.runs.run_deciders import Deciding
from perdure.controller.runs.run_record import RunRecord
from perdure.controller.workers import Workers, unserved
from perdure.engine.decider import Decider
from perdure.engine.state import RunState
from perdure.language.interpreter import load_memory, progress
from perdure.language.signals import Awaited, awaited
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import first_run_id


class CurrentFacts:
    """Collects the facts of one run at a time."""

    def __init__(self, run: RunRef, stored: RunRecord, effects: Effects, workers: Workers) -> None:
        """Create it without a decider.

        Args:
            run: The run.
            stored: Its object and status.
            effects: The objects that could not be created.
            workers: The server for workers, to see which task queues are polled.
        """
        self._run = run
        self._record = stored.record
        self._effects = effects
        self._workers = workers
        self.deciding = Deciding(decider=None)
        """The decider of the run, and the definition that it interprets."""

    @property
    def decider(self) -> Decider:
        """The decider for the next step. A closed run needs no decisions."""
        return self.deciding.decider or Idle()

    def collect(self, now: datetime, state: RunState | None) -> run_status.RunFacts:
        """Collect the facts; without a state for a run that has not started."""
        done, waits = "", list[Awaited]()
        definition, decider = self.deciding.definition, self.deciding.decider
        if state is not None and definition is not None:
            memory = load_memory(state.memory)
            done = "{}/{}".format(*progress(definition.program, memory))
            waits = awaited(definition.program, memory, state.timers)
        return run_status.RunFacts(
            name=self._run.name,
            uid=self._run.uid,
            first_uid=first_run_id(self._record.object),
            generation=self._record.object["metadata"].get("generation", 1),
            progress=done,
            awaited=waits,
            definition=definition.snapshot if definition else None,
            unserved=self._unserved(state, now) if state is not None else "",
            refused=self._effects.refused(state) if state is not None else "",
            points_to=decider.name if isinstance(decider, Pointer) else "",
        )

    def _unserved(self, state: RunState, now: datetime) -> str:
        reported = bool(lacks_worker(self._record.status))
        return unserved(state, now, self._workers, self._run.namespace, reported=reported)
