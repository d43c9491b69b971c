"""A member of a fleet: it renews its Lease, lists the Leases of other members, and computes which shards it owns.

Ownership saves work, and keeps state that exists only in memory in one process. Safety does not depend on it: each commit is
one compare-and-swap, and names are locks (docs/architecture-fleet.md).

Leases are built and read by pure functions. A member's view of its fleet, and its right to decide, is pure, too: times are
arguments, in seconds of a monotonic clock.

    A renews at 0 ─────── A may decide until 5 ┐ margin ┌ B, which has seen that renewal at 0 or later, lists again at 6 or later:
                                               └────────┘ unchanged, so A has stopped; B takes over now

Clocks of different members are never compared: a member measures how long a Lease has not changed, and when it sent its own
last renewal. A joining member gets shards of others, and waits until their Leases name it. If one of them does not renew, it
waits for the duration of a Lease, after which that one may no longer decide. A member whose own Lease has expired deletes it,
and joins again like a new one: it was suspended or disconnected, or the API server was down, so others have taken over, or have
stopped as well.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import structlog

from perdure.api import labels
from perdure.api.labels import FLEET_LABEL
from perdure.api.reasons import EventReason
from perdure.api.state_versions import OLDEST, newest_in, range_text
from perdure.api.times import write_micro_time
from perdure.controller.fleet.shards import SHARDS, owners, shard_of, shards_of
from perdure.controller.state_versions import StateVersions, state_versions
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.kube.events import Recorder
from perdure.kube.responses import decode
from perdure.observe import metrics

_FRAMES: Final = "1"
"""The form of the frames between members that this version knows."""
LONGEST_SECONDS: Final = 300.0
"""The longest duration of a Lease, as the chart limits it. So a forged Lease does not hold shards for longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The identity of a member."""

    fleet: str
    """The fleet: the name of the release."""
    name: str
    """The member: the name of the pod, and of its Lease."""
    pod_uid: str = ""
    """The UID of the pod, which owns the Lease: Kubernetes deletes the Lease with the pod, even if no member is left."""
    address: str = ""
    """Its address for other members: IP address and port, or only the IP address if it serves no SDKs."""
    seconds: int = 10
    """The duration of its Lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLease:
    """The content of the Lease of a member."""

    member: str
    """The member: the name of its pod."""
    holder: str
    """The process that holds the Lease. Each start of the operator is a new process."""
    uid: str
    version: str
    """The resourceVersion, which changes with each renewal."""
    seconds: float
    """The duration of the Lease."""
    renewed: str = ""
    """The time of the renewal according to the member."""
    members: frozenset[str] = frozenset()
    """The members among which it divides the shards, itself included."""
    address: str = ""
    """The address of the member."""
    reads: int = OLDEST
    """The newest state version that it reads."""
    takes_frames: bool = False
    """Whether it takes calls of other members as frames, and not over gRPC only, as versions before 0.2.0 do."""


def lease(settings: MemberSettings, holder: str, versions: StateVersions, now: datetime) -> kube.Object:
    """Build the Lease of a joining member, which knows no others yet. `holder` is its process."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": settings.name,
            "labels": {labels.FLEET_LABEL: settings.fleet},
            "annotations": _annotations(settings, (), versions),
            **_owner(settings),
        },
        "spec": {**_renewed(settings, holder, now), "acquireTime": write_micro_time(now)},
    }


def renewal(
    settings: MemberSettings,
    holder: str,
    version: str,
    members: Collection[str],
    versions: StateVersions,
    now: datetime,
) -> kube.Object:
    """Build the merge patch that renews the Lease if its resourceVersion has not changed."""
    return {
        "metadata": {
            "resourceVersion": version,
            # Without the label the others would not count on this member, which would continue to decide.
            "labels": {labels.FLEET_LABEL: settings.fleet},
            "annotations": _annotations(settings, members, versions),
        },
        "spec": _renewed(settings, holder, now),
    }


def _owner(settings: MemberSettings) -> dict[str, Any]:
    if not settings.pod_uid:
        return {}
    pod = {"apiVersion": "v1", "kind": "Pod", "name": settings.name, "uid": settings.pod_uid}
    return {"ownerReferences": [pod]}


def _annotations(settings: MemberSettings, members: Collection[str], versions: StateVersions) -> dict[str, str]:
    return {
        labels.STATE_VERSIONS_ANNOTATION: range_text(versions.reads),
        labels.STATE_VERSION_ANNOTATION: str(versions.writes),
        labels.MEMBER_ADDRESS_ANNOTATION: settings.address,
        labels.MEMBER_FRAMES_ANNOTATION: _FRAMES,
        labels.MEMBERS_ANNOTATION: ",".join(sorted(members)),
        labels.MEMBER_RELEASE_ANNOTATION: versions.release,
    }


def _renewed(settings: MemberSettings, holder: str, now: datetime) -> dict[str, Any]:
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": settings.seconds,
        "renewTime": write_micro_time(now),
    }


def read_lease(obj: kube.Object, default: float) -> MemberLease:
    """Read a Lease. `default`: the duration in seconds if the Lease has none."""
    meta, spec = obj["metadata"], obj.get("spec") or {}
    annotations = meta.get("annotations") or {}
    return MemberLease(
        member=meta["name"],
        holder=str(spec.get("holderIdentity") or ""),
        uid=meta["uid"],
        version=meta["resourceVersion"],
        seconds=min(float(spec.get("leaseDurationSeconds") or default), LONGEST_SECONDS),
        renewed=str(spec.get("renewTime") or ""),
        members=frozenset(annotations.get(labels.MEMBERS_ANNOTATION, "").split(",")),
        address=annotations.get(labels.MEMBER_ADDRESS_ANNOTATION, ""),
        reads=newest_in(annotations.get(labels.STATE_VERSIONS_ANNOTATION, "")),
        takes_frames=annotations.get(labels.MEMBER_FRAMES_ANNOTATION) == _FRAMES,
    )


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
        self._unknown = -math.inf
        """The last time at which no other member counted on this one and it had no Lease."""
        self._is_new = False
        """Whether no other member can know this one from an earlier membership."""

    # Observations

    def unknown(self, now: float) -> None:
        """Record that no other member counts on this one, which has no Lease."""
        self._unknown, self._renewed = now, -math.inf
        self._joined = self._active_from = math.inf

    def renewed(self, sent: float, now: float) -> None:
        """Record that a request wrote the member's own Lease; its response has just arrived.

        Args:
            sent: When the request was sent.
            now: The current time.
        """
        self.lapses += self.has_lapsed(now)
        if self.is_out(now):
            self._is_new = (
                now - self._unknown < self._seconds
            )  # nobody can have seen it, and found it expired, since then
            self._unknown = -math.inf
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

    @property
    def others_over_grpc(self) -> frozenset[str]:
        """The other members that take calls over gRPC only: those of earlier versions."""
        return frozenset(other.lease.member for other in self._living() if not other.lease.takes_frames)

    def is_active(self, now: float) -> bool:
        """Whether this member may decide."""
        return self._active_from <= now < self._fence

    def is_out(self, now: float) -> bool:
        """Whether this member must join: for the first time, or because others may have found its Lease expired or deleted."""
        return math.isinf(self._joined) or now - self._renewed >= self._seconds

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


_RENEWALS: Final = 5
"""Renewals per duration of a Lease: three in a row can be late, for example while a node has no idle CPU."""
_RETRY: Final = 1 / 12
"""The pause after two failed requests in a row, as a fraction of the duration of a Lease."""
_LATER_SECONDS: Final = 0.001
"""How much later than their due time checks run."""
_DRAIN_SECONDS: Final = 1.2
_RELEASE_SECONDS: Final = 0.6
"""How long a leaving member waits for work in progress, and for the deletion of its Lease."""


class NameTakenError(Exception):
    """Another process holds the Lease of this member."""


class Membership:
    """The shards of one member of a fleet."""

    def __init__(self, client: kube.Client, settings: MemberSettings, recorder: Recorder) -> None:
        """Create a member that has not joined. The Leases are in the namespace of the operator."""
        self._client = client
        self._events = FleetEvents(recorder, client.access.namespace)
        self._settings = settings
        self._holder = f"{settings.name}_{write_micro_time(wall_clock())}"
        self._url = kube.path(kube.COORDINATION, client.access.namespace, "leases")
        self._view = FleetView(settings.name, settings.seconds)
        self._version = self._uid = ""
        self._announced: frozenset[str] = frozenset()
        """The members in the last written Lease."""
        self._sent: tuple[str, float] = ("", -math.inf)
        """The last renewal: the time that it wrote, and when it was sent."""
        self._succeeds_by = math.inf
        """The latest time to join, even if others still count on an earlier process of its pod."""
        self._owners: tuple[str, ...] = ()
        """The owner of each shard."""
        self._held: frozenset[int] = frozenset()
        self._published: tuple[bool, int, frozenset[str]] = (False, 0, frozenset())
        self._lapses = 0
        """How many lapses of the view have been processed."""
        self._leaving = False
        self._subscribers: list[Callable[[], None]] = []
        self._assigned = asyncio.Event()
        self._prepared = asyncio.Event()
        self._log = structlog.get_logger("perdure.fleet")

    # Ownership

    @property
    def active(self) -> bool:
        """Whether this member may decide anything now."""
        return not self._leaving and self._view.is_active(_time())

    @property
    def shards(self) -> frozenset[int]:
        """The shards for which this member may decide now."""
        return self._held if self.active else frozenset()

    def holds(self, namespace: str, name: str) -> bool:
        """Whether the shard of an object is, or is about to be, owned by this member."""
        return shard_of(namespace, name) in self._held

    def owns(self, namespace: str, name: str) -> bool:
        """Whether this member may decide for an object now."""
        return self.active and self.holds(namespace, name)

    def owner(self, shard: int) -> str:
        """The member that owns a shard; empty for this one, or before it knows the others."""
        owner = self._owners[shard] if self._owners else ""
        return "" if owner == self._settings.name else owner

    def owns_shard(self, shard: int) -> bool:
        """Whether this member may decide for a shard now."""
        return self.active and shard in self._held

    @property
    def others(self) -> Mapping[str, str]:
        """The addresses of the other members, by name."""
        return self._view.others

    @property
    def others_read(self) -> Mapping[str, int]:
        """The newest state version that each of the other members reads, by name."""
        return self._view.others_read

    @property
    def others_over_grpc(self) -> Collection[str]:
        """The other members that take calls over gRPC only: those of earlier versions."""
        return self._view.others_over_grpc

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call a function whenever the members, the shards of this member, or its active state change."""
        self._subscribers.append(changed)

    async def assigned(self) -> None:
        """Wait until it is known which shards this member will own."""
        await self._assigned.wait()

    def prepared(self) -> None:
        """Record that the runs of these shards were read, so that the others can hand them over."""
        self._prepared.set()

    # Renewing

    async def run(self) -> None:
        """Run the membership until cancelled.

        Raises:
            NameTakenError: Another process has the same name.
        """
        seconds, failures = self._settings.seconds, 0
        while not self._leaving:
            try:
                if self._view.is_out(_time()):
                    await self._join()
                elif self._view.has_lapsed(_time()):
                    await self._list()  # without a list it decides nothing, so the others must not count on it either
                sent = await self._renew()
                await self._list()
                self._publish()
                if self._view.members != self._announced:
                    sent = await self._renew()  # a joining member waits for that
                pause = max(0.0, sent + seconds / _RENEWALS - _time())
                failures = 0
            except (kube.RequestError, TimeoutError) as error:
                self._log.warning("Could not renew the membership of the fleet, retrying", error=repr(error))
                pause = seconds * _RETRY if failures else 0.0  # a conflict or a broken connection is likely resolved
                failures += 1
            self._publish()
            soon = self._view.next_change(_time()) - _time() + _LATER_SECONDS
            await asyncio.sleep(min(pause, soon))
            self._publish()

    async def _join(self) -> None:
        """Prepare to join, or to join again: end an earlier membership, and read the runs of the future shards."""
        if self._version:
            await self._resign()
        is_unknown = await self._succeed()
        self._succeeds_by = math.inf
        if not is_unknown:
            return
        self._hold(shards_of(self._settings.name, {self._settings.name, *self._view.others}))
        self._assigned.set()
        await self._prepared.wait()  # until then, the others own the shards
        self._view.unknown(_time())

    async def _resign(self) -> None:
        """Become another holder of the Lease, so that `_succeed` deletes the one of this process.

        Raises:
            NameTakenError: Another process has the same name.
        """
        with suppress(kube.NotFoundError):
            await self._read()
        self._holder = f"{self._settings.name}_{write_micro_time(wall_clock())}"
        self._version = ""

    async def _succeed(self) -> bool:
        """Before joining, wait until no other member counts on a member with this name.

        The Lease of an earlier process of the pod, or of an earlier membership, is deleted, so that the others take over its
        shards now. If it were renewed instead, nobody might own them for the duration of a Lease, because the others may have
        just found it expired.

        Returns:
            False if this member has a Lease: it was created, but the response was lost.
        """
        url = f"{self._url}/{self._settings.name}"
        async with asyncio.timeout(self._settings.seconds / _RENEWALS):
            with suppress(kube.NotFoundError):
                found = read_lease(await self._client.get(url), self._settings.seconds)
                if found.holder == self._holder:
                    return False
                await self._client.delete(url, uid=found.uid)
        if math.isinf(self._succeeds_by):
            self._succeeds_by = _time() + self._settings.seconds  # members that are silent until then no longer decide
        await self._list()
        while self._view.is_counted_on and _time() < self._succeeds_by:
            await asyncio.sleep(self._settings.seconds * _RETRY)
            await self._list()
        return True

    async def _renew(self) -> float:
        """Create or renew the Lease, and return when the effective renewal was sent."""
        now, sent, before, members = wall_clock(), _time(), self._sent, self._view.members
        self._sent = write_micro_time(now), sent
        async with asyncio.timeout(self._settings.seconds / _RENEWALS):
            try:
                answer = await (self._write(now) if self._version else self._create(now))
            except kube.NotFoundError:
                self._version = ""
                self._view.lost()
                raise
            except kube.ConflictError:
                found = await self._read()
                if found.renewed != before[0]:
                    raise
                self._announced = found.members  # the previous renewal was written, but its response was lost
                self._view.renewed(before[1], _time())
                return before[1]
        self._version, self._uid = answer["metadata"]["resourceVersion"], answer["metadata"]["uid"]
        self._announced = members
        self._view.renewed(sent, _time())
        return sent

    async def _create(self, now: datetime) -> kube.Object:
        settings = self._settings
        body = lease(settings, self._holder, state_versions(), now)
        try:
            return await self._client.create(self._url, body)
        except kube.AlreadyExistsError:  # the response was lost
            await self._read()
            return await self._write(now)

    async def _write(self, now: datetime) -> kube.Object:
        body = renewal(self._settings, self._holder, self._version, self._view.members, state_versions(), now)
        return await self._client.merge(f"{self._url}/{self._settings.name}", body)

    async def _read(self) -> MemberLease:
        """Read the Lease to find out whether this process wrote it although the response was lost."""
        found = read_lease(await self._client.get(f"{self._url}/{self._settings.name}"), self._settings.seconds)
        if found.holder != self._holder:
            raise NameTakenError(
                f"another operator holds Lease `{found.member}` of the fleet `{self._settings.fleet}`: give each "
                "operator its own POD_NAME"
            )
        self._version = found.version
        return found

    async def _list(self) -> None:
        sent = _time()
        selector = f"{FLEET_LABEL}={self._settings.fleet}"
        async with asyncio.timeout(self._settings.seconds / _RENEWALS):
            # Not with `each`, because the operator may not serve its own namespace.
            pages = [page async for page in self._client.lists.pages(self._url, labelSelector=selector)]
        found = [read_lease(decode(memoryview(raw)), self._settings.seconds) for page in pages for raw in page.items]
        expired = self._view.listed(found, sent, _time())
        metrics.FLEET_TAKE_OVERS.inc(len(expired))
        if self._settings.name == min(self._view.members, default=""):  # one of the live members reports it
            for each in expired:
                self._events.lost(each)
        self._publish()  # must be first: the fence counts from this list
        for each in self._view.outdated(_time()):
            await self._delete(each)

    async def _delete(self, member: MemberLease) -> None:
        with suppress(kube.RequestError):
            await self._client.delete(f"{self._url}/{member.member}", uid=member.uid, version=member.version)

    def _publish(self) -> None:
        """Log and publish what has changed."""
        view, before = self._view, self._published
        after = self.active, view.joins, view.members
        resumed, self._lapses = view.lapses != self._lapses, view.lapses
        if self._leaving:
            return
        if after == before:
            if resumed and after[0]:
                self._hold(self._held)  # keys that came due during the lapse were refused
            return
        self._published, lapsed = after, view.has_lapsed(_time())
        self._owners = owners(view.members - {self._settings.name} if lapsed else view.members)
        if before[0] and (not after[0] or before[1] != after[1]):
            self._hold(frozenset())  # others may have done the work in memory since then
            self._log.warning("The Lease was not renewed in time: other operators own the shards of this member")
        if view.members and not lapsed:
            self._hold(shards_of(self._settings.name, view.members))
        if after[0] and not before[0]:
            self._events.joined(self._settings.name, self._uid, len(self._held), len(view.members))
        metrics.FLEET_MEMBERS.set(len(view.members))
        metrics.FLEET_SHARDS.set(len(self.shards))
        self._log.info("The fleet has changed", members=sorted(view.members), active=after[0], shards=len(self._held))

    def _hold(self, shards: frozenset[int]) -> None:
        self._held = shards
        for changed in self._subscribers:
            changed()

    # Leaving

    async def leave(self, *drains: Callable[[], Awaitable[None]]) -> None:
        """Stop deciding, wait briefly for work in progress, and delete the Lease, so that others take over immediately."""
        self._leaving = True
        self._owners = owners(self._view.members - {self._settings.name})
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                for drain in drains:
                    await drain()
        with suppress(kube.RequestError, TimeoutError):
            async with asyncio.timeout(_RELEASE_SECONDS):
                if self._uid:
                    await self._client.delete(f"{self._url}/{self._settings.name}", uid=self._uid)
        self._hold(frozenset())  # what waits here, such as polls, is for the new owners now


class FleetEvents:
    """The Events that report who joins a fleet, and who is lost. They are about the Lease of the member."""

    def __init__(self, recorder: Recorder, namespace: str) -> None:
        """`namespace` has the Leases."""
        self._recorder = recorder
        self._namespace = namespace

    def joined(self, member: str, uid: str, shards: int, members: int) -> None:
        """Record that a member owns shards now.

        Args:
            member: Its name.
            uid: The UID of its Lease.
            shards: How many shards it owns.
            members: How many members there are.
        """
        note = f"{member} owns {shards} of {SHARDS} shards; the fleet has {members} operators"
        about, reason = self._about(member, uid), EventReason.OPERATOR_JOINED
        self._recorder.record(about, kind="Normal", reason=reason, note=note, action="Join")

    def lost(self, lost: MemberLease) -> None:
        """Record that the Lease of a member has expired."""
        note = f"{lost.member} has not renewed its Lease for {lost.seconds:.0f} s: other operators own its shards"
        about, reason = self._about(lost.member, lost.uid), EventReason.OPERATOR_LOST
        self._recorder.record(about, kind="Warning", reason=reason, note=note, action="TakeOver")

    def _about(self, member: str, uid: str) -> kube.Object:
        meta = {"name": member, "namespace": self._namespace, "uid": uid}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}


def _time() -> float:
    return asyncio.get_running_loop().time()
