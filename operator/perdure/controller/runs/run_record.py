"""The stored state of a run: read, check, and write its status and its sealed history."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from perdure.controller.artifacts.run_artifacts import RunArtifacts
from perdure.controller.payloads.payload_store import Blobs, BlobsOfRun
from perdure.controller.reconcile.record import Record, Status, encoded
from perdure.controller.recorded_state import DamagedStateError, next_event_id, stored_state
from perdure.controller.runs import run_status
from perdure.controller.runs.history_segments import Sealed, Segments
from perdure.controller.runs.run_status import RunFacts
from perdure.engine.decider import Decider
from perdure.engine.fold import apply
from perdure.engine.state import RunState
from perdure.engine.step import RunTransition, terminate
from perdure.kube import client as kube
from perdure.runtime import status_texts
from perdure.runtime.attempts import RunRef
from perdure.runtime.commits import OF_RUNS, Witness

Facts = Callable[[RunState], RunFacts]
"""Returns the facts that the status shows in addition to the state."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The state of a run before its first commit, if it starts with another one's history."""

    status: Status
    state: RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The result of a commit."""

    transition: RunTransition
    """The recorded transition: the given one or, if that did not fit into the object, the termination of the run."""
    too_large: str = ""
    """Why the run was terminated instead."""
    truncated: str = ""
    """Why a part of the history could not be sealed."""


class OutOfStepError(kube.ConflictError):
    """A transition does not continue the history in the status, because it starts from another state."""


class NoRoomError(Exception):
    """The status of the run has no room for a transition; nothing was recorded."""


class RunRecord:
    """The stored state of one run."""

    def __init__(self, client: kube.Client, obj: kube.Object, run: RunRef, blobs: Blobs) -> None:
        """`obj`: the object of the run; `blobs`: stores the large payloads of commits."""
        self.record = Record(client, obj)
        self.blobs = BlobsOfRun(blobs, run)
        self.artifacts = RunArtifacts(client, run)
        self.segments = Segments(client, run)
        self.size = 0
        """Size of the status that was committed last, in bytes, as it is stored; 0 before the first commit of this process."""
        self._witness = Witness(OF_RUNS, run.uid, starts_work=True)

    @property
    def restored(self) -> bool:
        """Whether an edited status was accepted and this is not recorded yet."""
        return self._witness.accepted

    def state(self) -> RunState | None:
        """The state in the status, which must be the last committed one; None for a run that has not started.

        Raises:
            DamagedStateError: The state is not the last committed one.
            NewerStateError: A newer version has written it.
        """
        current = self.record.latest()
        state = stored_state(current)
        damage = self._witness.damage(current)
        if damage:
            raise DamagedStateError(damage)
        return state

    async def write(self, status: Status, texts: status_texts.Texts | None = None) -> None:
        """Commit a status.

        Raises:
            ConflictError, TooLargeError: As `Record.write`, whose arguments these are.
        """
        await self.record.write(self._witness.commit(status, self.record.status), texts)
        self._witness.recorded(self.record.status)

    async def commit(  # noqa: PLR0917 (the parts of a commit)
        self,
        state: RunState | None,
        transition: RunTransition,
        now: datetime,
        decider: Decider,
        facts: Facts,
        origin: Origin | None = None,
        *,
        may_end: bool = True,
    ) -> Committed:
        """Record a transition with one write, which fails if another client has written since.

        Args:
            state: The state of the run; None before it has started.
            transition: The transition from the engine.
            now: The time.
            decider: The decider, only used to terminate the run if necessary.
            facts: The facts for the status, in addition to the state.
            origin: The starting point of a run that begins with another run's history.
            may_end: Whether to terminate the run if the transition does not fit into the object.

        Raises:
            OutOfStepError: The transition does not continue the stored history.
            ConflictError: Another client has written.
            NoRoomError: The transition does not fit, and `may_end` is false.
            TooLargeError: Not even the termination of the run fits.
        """
        before = origin.status if origin else self.record.status
        sealed = Sealed(before) if state is None or state.closed else await self.segments.seal(before, now)
        truncated = sealed.damage.message if sealed.damage else ""
        status = _composed(sealed.status, transition, facts, now)
        texts = status_texts.Texts()
        text, size = encoded(status), texts.size_of(status)
        reason = run_status.too_large(size)
        if reason is None:
            await self.artifacts.hold(text)
            stored = await self.blobs.store(text, self.record.status, (transition.events, transition.state))
            try:
                await self.write(status, texts)
                self.blobs.committed(stored)
                self.size = size
            except kube.TooLargeError as error:
                reason = run_status.refused_as_too_large(error.message)
        if reason is None:
            return Committed(transition=transition, truncated=truncated)
        if not may_end:
            raise NoRoomError
        known = state or (origin.state if origin else None)
        ended = _terminated(known, transition, reason, now, decider)
        status = _composed(sealed.status, ended, facts, now)
        try:
            await self.write(status)
        except kube.TooLargeError:
            await self.write(run_status.bare(status))
        return Committed(transition=ended, too_large=reason, truncated=truncated)


def _terminated(
    state: RunState | None, transition: RunTransition, reason: str, now: datetime, decider: Decider
) -> RunTransition:
    """The termination of a run, instead of a transition that does not fit into the object."""
    first = () if state else transition.events[:1]
    ended = terminate(state or apply(None, first[0]), reason, now, decider)
    return replace(ended, events=(*first, *ended.events))


def _composed(before: Status, transition: RunTransition, facts: Facts, now: datetime) -> Status:
    """The status with a transition.

    Raises:
        OutOfStepError: The transition does not continue the history in the status.
    """
    following = next_event_id(before)
    if transition.events and transition.events[0].event_id != following:
        message = f"event {transition.events[0].event_id} does not follow event {following - 1}"
        raise OutOfStepError(409, "Conflict", message)
    return run_status.compose(before, facts(transition.state), transition.state, transition.events, now)
