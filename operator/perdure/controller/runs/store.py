"""The stored state of a run: read, check, and write its status and its sealed history.

A long tail of the history is sealed: it is moved to a HistorySegment, before the commit that drops it from the status. Only
committed events are sealed, not those of the current reconciliation, which may be decided differently after a crash.
So every operator that seals, now or after a restart, has the same events for the same name. If one of them had fewer events,
its segment is used.

    create segment n ──▶ commit: tail without its events, segments: n + 1, lastSegmentHash
         │ killed here: the segment is found by its name, and its events are dropped from the tail if they are the same
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus

import structlog

from perdure.api.names import segment_name
from perdure.api.state_versions import NEWEST, OLDEST, needed
from perdure.controller.artifacts import RunArtifacts
from perdure.controller.payloads import Blobs, BlobsOfRun
from perdure.controller.reconcile.newer_states import NewerStateError
from perdure.controller.reconcile.record import Record, Status, encoded
from perdure.controller.recorded_state import DamagedStateError, stored_state
from perdure.controller.runs.status import (
    StatusComposer,
    bare,
    refused_as_too_large,
    too_large,
    truncated,
    without_sealed,
)
from perdure.controller.state_versions import state_versions
from perdure.engine.commands import Decider
from perdure.engine.fold import apply
from perdure.engine.state import RunState
from perdure.engine.step import RunTransition, terminate
from perdure.kube import client as kube
from perdure.observe import metrics
from perdure.runtime import segments, status_encoding
from perdure.runtime.attempts import RunRef
from perdure.runtime.commits import OF_RUNS, Witness, next_event_id
from perdure.runtime.segments import AssembledHistory, Damage

_AGAIN_AFTER = 50
"""Number of events by which the tail grows before rejected sealing is retried."""


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


class RunStore:
    """The stored state of one run."""

    def __init__(
        self, client: kube.Client, obj: kube.Object, run: RunRef, blobs: Blobs, composer: StatusComposer
    ) -> None:
        """Create it with what was read.

        Args:
            client: The client of the API server.
            obj: The object of the run.
            run: The run.
            blobs: Stores the large payloads of commits.
            composer: Composes the status of the run.
        """
        self.record = Record(client, obj)
        self._composer = composer
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

    async def write(self, status: Status, texts: status_encoding.Texts | None = None) -> None:
        """Commit a status.

        Raises:
            ConflictError, TooLargeError: As `Record.write`, whose arguments these are.
        """
        before, versions = self.record.status, state_versions()
        begins = "commit" not in before and versions.writes < NEWEST  # later on, it keeps its version
        least = needed(self.record.object["spec"], status.get("definition")) if begins else OLDEST
        await self.record.write(self._witness.commit(versions.stamp(status, before, least), before), texts)
        self._witness.recorded(self.record.status)

    async def commit(
        self,
        state: RunState | None,
        transition: RunTransition,
        now: datetime,
        decider: Decider,
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
        status = self._composed(sealed.status, transition, now)
        texts = status_encoding.Texts()
        text, size = encoded(status), texts.size_of(status)
        reason = too_large(size)
        if reason is None:
            await self.artifacts.hold(text)
            stored = await self.blobs.store(text, self.record.status, (transition.events, transition.state))
            try:
                await self.write(status, texts)
                self.blobs.committed(stored)
                self.size = size
            except kube.TooLargeError as error:
                reason = refused_as_too_large(error.message)
        if reason is None:
            return Committed(transition=transition, truncated=truncated)
        if not may_end:
            raise NoRoomError
        known = state or (origin.state if origin else None)
        ended = _terminated(known, transition, reason, now, decider)
        status = self._composed(sealed.status, ended, now)
        try:
            await self.write(status)
        except kube.TooLargeError:
            await self.write(bare(status))
        return Committed(transition=ended, too_large=reason, truncated=truncated)

    def _composed(self, before: Status, transition: RunTransition, now: datetime) -> Status:
        """The status with a transition.

        Raises:
            OutOfStepError: The transition does not continue the history in the status.
        """
        following = next_event_id(before)
        if transition.events and transition.events[0].event_id != following:
            message = f"event {transition.events[0].event_id} does not follow event {following - 1}"
            raise OutOfStepError(409, "Conflict", message)
        run = {**self.record.object, "status": before}
        return self._composer.compose(run, transition.state, transition.events, now)


def _terminated(
    state: RunState | None, transition: RunTransition, reason: str, now: datetime, decider: Decider
) -> RunTransition:
    """The termination of a run, instead of a transition that does not fit into the object."""
    first = () if state else transition.events[:1]
    ended = terminate(state or apply(None, first[0]), reason, now, decider)
    return replace(ended, events=(*first, *ended.events))


@dataclass(frozen=True, slots=True)
class Sealed:
    """The result of sealing, from which a commit continues."""

    status: Status
    damage: Damage | None = None
    """Damage of the history that its run does not show yet."""


class ForeignSegmentError(Exception):
    """Another object has the name of a new segment. The message says what to do."""


async def past_of(client: kube.Client, run: kube.Object) -> AssembledHistory:
    """Read the whole history of a run, and its damage, if any.

    Raises:
        NewerStateError: A newer version has written a part of it.
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    meta, history = run["metadata"], (run.get("status") or {}).get("history") or {}
    found = []
    for index in range(history.get("segments", 0)):
        name = segment_name(meta["name"], meta["uid"], index)
        with suppress(kube.NotFoundError):
            segment = await client.get(kube.path(kube.PERDURE, meta["namespace"], "historysegments", name))
            if why := segments.newer_part(segment, state_versions().reads):
                raise NewerStateError(f"HistorySegment `{name}`: {why}")
            found.append(segment)
    return segments.gather(run, found)


class Segments:
    """The HistorySegments of one run."""

    def __init__(self, client: kube.Client, run: RunRef) -> None:
        self._client = client
        self._run = run
        self._not_before = 0
        self._log = structlog.get_logger("perdure.segments").bind(namespace=run.namespace, run=run.name)

    async def seal(self, status: Status, now: datetime) -> Sealed:
        """Seal the tail of a committed status, if it is long enough. A failure to seal never stops the run.

        Args:
            status: The status of an open run, as committed.
            now: The time.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        history = status.get("history") or {}
        tail = history.get("events") or []
        if len(tail) < self._not_before or not segments.is_due(tail):
            return Sealed(status)
        index, previous = history.get("segments", 0), history.get("lastSegmentHash")
        damage = await self._last_damaged(index, previous)
        segment = state_versions().stamp_spec(segments.build(self._run, index, tail, previous))
        try:
            await self._client.create(self._url(), segment)
            metrics.SEGMENTS.inc()
        except kube.AlreadyExistsError:
            segment = await self._client.get(self._url(segment["metadata"]["name"]))
            if why := segments.newer_part(segment, state_versions().reads):
                # A newer operator was killed before its commit. It uses the segment; for this one, the tail grows up to a limit.
                self._not_before = len(tail) + _AGAIN_AFTER
                self._log.warning("A newer version has sealed the history", problem=why)
                return Sealed(status)
            wrong = segments.fault(segment, self._run.uid, index, previous)
            if wrong is None and not segments.continues(segment, tail):
                wrong = "contains different events than the run's status"
            if wrong is not None:
                self._not_before = len(tail) + _AGAIN_AFTER
                wrong = f"{wrong}; delete it, so that the history can be sealed"
                return _sealed(status, segments.changed(segment["metadata"]["name"], wrong), now)
        except kube.ApiError as error:
            # A quota, a policy, or a missing role. Meanwhile the tail grows up to a limit.
            for_now = error.status >= HTTPStatus.INTERNAL_SERVER_ERROR or error.status == HTTPStatus.TOO_MANY_REQUESTS
            if for_now and not isinstance(error, kube.TooLargeError):
                raise
            self._not_before = len(tail) + _AGAIN_AFTER
            self._log.warning("The history cannot be sealed", error=error.message)
            return Sealed(status)
        self._not_before = 0
        return _sealed(without_sealed(status, segment), damage, now)

    async def put(self, chained: Sequence[kube.Object]) -> None:
        """Create the segments of the history that a run starts with, unless they exist.

        Raises:
            ForeignSegmentError: Another object has the name of a segment.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        for segment in chained:
            spec, name = segment["spec"], segment["metadata"]["name"]
            try:
                await self._client.create(self._url(), state_versions().stamp_spec(segment))
            except kube.AlreadyExistsError:
                found = await self._client.get(self._url(name))
                wrong = segments.fault(found, self._run.uid, spec["index"], spec.get("previousHash"))
                if wrong is None and found["spec"]["hash"] != spec["hash"]:
                    wrong = "has other events"
                if wrong is not None:
                    raise ForeignSegmentError(f"HistorySegment `{name}` {wrong}; delete it") from None
            else:
                metrics.SEGMENTS.inc()

    async def _last_damaged(self, index: int, previous: str | None) -> Damage | None:
        """The damage of the previous segment. Older ones are only checked when read, so the cost of sealing is constant."""
        if index == 0:
            return None
        name = segment_name(self._run.name, self._run.uid, index - 1)
        try:
            found = await self._client.get(self._url(name))
        except kube.NotFoundError:
            return segments.missing(name)
        wrong = segments.fault(found, self._run.uid, index - 1, found["spec"].get("previousHash"))
        if wrong is None and found["spec"]["hash"] != previous:
            wrong = f"has hash {found['spec']['hash']}, but the run's status has {previous}"
        return segments.changed(name, wrong) if wrong else None

    def _url(self, name: str | None = None) -> str:
        return kube.path(kube.PERDURE, self._run.namespace, "historysegments", name)


def _sealed(status: Status, damage: Damage | None, now: datetime) -> Sealed:
    if damage is None:
        return Sealed(status)
    marked = truncated(status, damage, now)
    return Sealed(marked, damage if marked is not status else None)
