"""Sealing: move a long tail of a run's history to a HistorySegment, before the commit that drops it from the status.

Only committed events are sealed, not those of the current reconciliation, which may be decided differently after a crash.
So every operator that seals, now or after a restart, has the same events for the same name. If one of them had fewer events,
its segment is used.

    create segment n ──▶ commit: tail without its events, segments: n + 1, lastSegmentHash
         │ killed here: the segment is found by its name, and its events are dropped from the tail if they are the same
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus

import structlog

from perdure.api.names import segment_name
from perdure.controller.reconcile.record import Status
from perdure.controller.runs.run_status import truncated, without_sealed
from perdure.kube import client as kube
from perdure.observe import metrics
from perdure.runtime import segments
from perdure.runtime.attempts import RunRef
from perdure.runtime.segments import Damage, Past

_AGAIN_AFTER = 50
"""Number of events by which the tail grows before rejected sealing is retried."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """The result of sealing, from which a commit continues."""

    status: Status
    damage: Damage | None = None
    """Damage of the history that its run does not show yet."""


class ForeignSegmentError(Exception):
    """Another object has the name of a new segment. The message says what to do."""


async def past_of(client: kube.Client, run: kube.Object) -> Past:
    """Read the whole history of a run, and its damage, if any.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    meta, history = run["metadata"], (run.get("status") or {}).get("history") or {}
    found = []
    for index in range(history.get("segments", 0)):
        name = segment_name(meta["name"], meta["uid"], index)
        with suppress(kube.NotFoundError):
            found.append(await client.get(kube.path(kube.PERDURE, meta["namespace"], "historysegments", name)))
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
        segment = segments.build(self._run, index, tail, previous)
        try:
            await self._client.create(self._url(), segment)
            metrics.SEGMENTS.inc()
        except kube.AlreadyExistsError:
            segment = await self._client.get(self._url(segment["metadata"]["name"]))
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
                await self._client.create(self._url(), segment)
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
