"""A member's view of its fleet, and its right to decide. Pure: times are arguments, in seconds of a monotonic clock.

    A renews at 0 ─────── A may decide until 5 ┐ margin ┌ B, which has seen that renewal at 0 or later, lists again at 6 or later:
                                               └────────┘ unchanged, so A has stopped; B takes over now

Clocks of different members are never compared: a member measures how long a Lease has not changed, and when it sent its own
last renewal. A joining member gets shards of others. It waits until their Leases name it. If it was a member before, or one of
them does not renew, it waits for the duration of a Lease, after which they may no longer decide.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from perdure.controller.fleet.lease import MemberLease

_DECIDES_FOR: Final = 5 / 6
"""How long a member may decide after it has sent a renewal or a list request, as a fraction of the duration of a Lease."""
_LOOKS: Final = 1 / 12
"""How often a joining member checks whether the others count on it, as a fraction of the duration of a Lease."""
_KEPT_SECONDS: Final = 60.0
"""How long an expired Lease is kept."""


@dataclass(slots=True)
class _Other:
    """Another member."""

    lease: MemberLease
    since: float
    """When this version of its Lease was first seen."""
    expired: float = math.inf
    """When its Lease was found to have expired."""


class FleetView:
    """The live members from the view of one of them."""

    def __init__(self, me: str, seconds: float) -> None:
        """Create an empty view.

        Args:
            me: The name of this member.
            seconds: The duration of its Lease.
        """
        self.joins = 0
        """How often this member has joined. Others may have done the work that it knew before the last time."""
        self.lapses = 0
        """How many renewals and lists came so late that this member could not decide for a while."""
        self._me = me
        self._seconds = seconds
        self._joined = math.inf
        self._active_from = math.inf
        self._renewed = -math.inf
        self._listed = -math.inf
        self._others: dict[str, _Other] = {}
        self._is_new = False
        """Whether no other member can know this one from an earlier membership."""

    # Observations

    def renewed(self, sent: float, now: float, *, created: bool = False) -> None:
        """Record that a request wrote the member's own Lease; its response has just arrived.

        Args:
            sent: When the request was sent.
            now: The current time.
            created: Whether the request created the Lease.
        """
        self.lapses += self.has_lapsed(now)
        if self._joined > now or now - self._renewed >= self._seconds:
            self._is_new = created and not self.joins
            self.joins += 1
            self._joined, self._active_from = now, math.inf
        self._renewed = sent

    def lost(self) -> None:
        """Record that the member's own Lease no longer exists, so that others do not count on this member."""
        self._joined = self._active_from = math.inf

    def listed(self, leases: Iterable[MemberLease], sent: float, now: float) -> list[MemberLease]:
        """Record a list of all Leases of the fleet, requested at `sent`; return the Leases that have expired."""
        self.lapses += self.has_lapsed(now)
        found: dict[str, _Other] = {}
        expired = []
        for lease in leases:
            if lease.member == self._me:
                continue
            other = self._others.get(lease.member)
            if other is None or (other.lease.uid, other.lease.version) != (lease.uid, lease.version):
                other = _Other(lease, now)
            elif math.isinf(other.expired) and sent - other.since >= lease.seconds:
                other.expired = now
                expired.append(other.lease)
            found[lease.member] = other
        self._others = found
        self._listed = sent
        if sent < self._joined:
            return expired
        if math.isinf(self._active_from):
            longest = max((other.lease.seconds for other in self._living()), default=0.0)
            self._active_from = self._joined + max(longest, self._seconds) if longest else now
        if self._is_new and now < self._active_from and self._all_count_on_me():
            self._active_from = now
        return expired

    # Conclusions

    @property
    def members(self) -> frozenset[str]:
        """The members among which the shards are divided; empty until this one has joined and seen the others."""
        if math.isinf(self._active_from):
            return frozenset()
        return frozenset({self._me, *(other.lease.member for other in self._living())})

    @property
    def is_counted_on(self) -> bool:
        """Whether the Lease of another member names this one, according to the last list."""
        return any(self._me in other.lease.members for other in self._living())

    @property
    def others(self) -> dict[str, str]:
        """The addresses of the other members, by name."""
        return {other.lease.member: other.lease.address for other in self._living()}

    @property
    def others_read(self) -> dict[str, int]:
        """The newest state version that each of the other members reads, by name."""
        return {other.lease.member: other.lease.reads for other in self._living()}

    def is_active(self, now: float) -> bool:
        """Whether this member may decide."""
        return self._active_from <= now < self._fence

    def has_lapsed(self, now: float) -> bool:
        """Whether this member was active, and did not renew or list the others in time."""
        return self._active_from <= now and not self.is_active(now)

    def next_change(self, now: float) -> float:
        """The latest time of the next check: this member may become active, or another one may have expired."""
        soon = now + self._seconds * _LOOKS if self._is_new and now < self._active_from else math.inf
        times = [soon, self._active_from, *(other.since + other.lease.seconds for other in self._living())]
        return min((time for time in times if time > now), default=math.inf)

    def outdated(self, now: float) -> list[MemberLease]:
        """The Leases that expired so long ago that they can be deleted."""
        return [other.lease for other in self._others.values() if now - other.expired >= _KEPT_SECONDS]

    def _living(self) -> list[_Other]:
        return [other for other in self._others.values() if math.isinf(other.expired)]

    def _all_count_on_me(self) -> bool:
        return all(self._me in other.lease.members for other in self._living())

    @property
    def _fence(self) -> float:
        return min(self._renewed, self._listed) + self._seconds * _DECIDES_FOR
