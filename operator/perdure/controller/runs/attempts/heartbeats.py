"""Read the heartbeats of one run's attempts. Their Leases are not watched, but read when they are due."""

import asyncio
from collections.abc import Iterator
from datetime import datetime

from perdure.controller.pods.attempt_pods import PodKey
from perdure.controller.runs.attempts.attempt_context import AttemptContext
from perdure.engine.inputs import HeartbeatRead
from perdure.engine.state import PendingActivity, RunState
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.kube.clock import polling
from perdure.runtime.leases import Pulse, heartbeat


class LeaseHeartbeats:
    """The Leases of one run's attempts."""

    def __init__(self, context: AttemptContext) -> None:
        """Create it without Leases."""
        self._context = context
        self._pulses: dict[PodKey, Pulse] = {}

    async def listen(self, state: RunState, now: datetime) -> dict[PodKey, HeartbeatRead]:
        """Read the due Leases concurrently, and return heartbeats and missed ones."""
        due = [activity for activity, time in self._reads(state, now) if now >= time]
        beats = await asyncio.gather(*(self._listen_to(activity, now) for activity in due), return_exceptions=True)
        read: dict[PodKey, HeartbeatRead] = {}
        for activity, beat in zip(due, beats, strict=True):
            if isinstance(beat, BaseException):
                raise beat
            if beat is not None:
                read[PodKey.of(activity)] = beat
        return read

    async def _listen_to(self, activity: PendingActivity, now: datetime) -> HeartbeatRead | None:
        key = PodKey.of(activity)
        known = self._pulse(activity, now)
        lease, pulse = await self._read(activity, now)
        self._pulses[key] = pulse
        attempt = self._context.definitions.attempt(activity)
        return heartbeat(attempt, lease, pulse) if pulse.since != known.since or self.silent(activity) else None

    async def last(self, activity: PendingActivity, now: datetime) -> tuple[kube.Object | None, HeartbeatRead]:
        """Read the Lease of an ended attempt, and its last heartbeat."""
        lease, pulse = await self._read(activity, now)
        return lease, heartbeat(self._context.definitions.attempt(activity), lease, pulse)

    async def _read(self, activity: PendingActivity, now: datetime) -> tuple[kube.Object | None, Pulse]:
        known, attempt = self._pulse(activity, now), self._context.definitions.attempt(activity)
        sent = wall_clock()
        lease = await self._context.api.leases.read(self._context.run, PodKey.of(activity))
        return lease, known.read(attempt, lease, sent, wall_clock())

    def silent(self, activity: PendingActivity) -> bool:
        """Whether an attempt has missed its heartbeat timeout."""
        pulse, timeout = self._pulses.get(PodKey.of(activity)), activity.heartbeat_timeout
        return pulse is not None and timeout is not None and pulse.lost(timeout)

    def next_reads(self, state: RunState, now: datetime) -> Iterator[datetime]:
        """When to read Leases."""
        return (time for _, time in self._reads(state, now))

    def forget(self, key: PodKey) -> None:
        """Forget an attempt whose end is recorded."""
        self._pulses.pop(key, None)

    def _reads(self, state: RunState, now: datetime) -> Iterator[tuple[PendingActivity, datetime]]:
        for activity in state.open_activities():
            if activity.started_time is not None and activity.heartbeat_timeout is not None:
                yield activity, self._pulse(activity, now).next_read(activity.heartbeat_timeout)

    def _pulse(self, activity: PendingActivity, now: datetime) -> Pulse:
        return self._pulses.setdefault(PodKey.of(activity), Pulse.begin(now, exact=not polling.get()))
