"""Operators of other versions: an older one, today's, and a newer one, which has one more field in every state that it writes.

An older operator is today's code that reads one state version less. A newer one is today's code that reads one more, behind a
translation: a status of its state version gets the field, and a digest that covers it; what it reads loses the field again. So to
every other client, it knows a field that today's version does not know.

`Forms` checks every write: an operator must change nothing but conditions in what it cannot read, and must not write a version
before all operators have read it for the hold-back.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
from msgspec.structs import replace

from perdure.api.labels import FLEET_LABEL
from perdure.api.state_versions import NEWEST, OLDEST, version_of
from perdure.controller.fleet.membership import read_lease
from perdure.runtime import status_encoding
from perdure.runtime.commits import OF_RUNS, OF_SCHEDULES, committed
from perdure.simulation.cluster.apiserver import Request, Response
from perdure.simulation.cluster.store import Object, Write
from support.faulty.network import FaultySession

OLDER: Final = NEWEST - 1
NEWER: Final = NEWEST + 1
HOLD_BACK: Final = 60.0
"""How long all operators read a state version before they write it, in seconds."""
_LEASE_SECONDS: Final = 10.0
"""The duration of the Leases."""
_NOTICED: Final = 15.0
"""How long an operator may write a version that another one, whose Lease exists, cannot read, in seconds.

A member decides for at most 8.3 s after it has sent a list request that did not show the Lease. A write that it has sent then
arrives at most 5.1 s later: once a broken connection is noticed, it is sent again. Lags of watches do not matter.
"""
_RECORDED: Final = 45.0
"""After this time, the upgrade record takes an operator into account that the writer has not met, in seconds.

Each operator looks every 10 s, and each look can fail. Then the older operator, or one that has met it, may be killed.
"""
_RESOLUTION: Final = 1.0
"""The resolution of the time in responses of the API server, with which the end of the hold-back is compared, in seconds."""
FIELD = "sinceNewer"
"""The field of the newer version: the number of the commit that wrote it."""
_COVERED = {"workflowruns": OF_RUNS, "schedules": OF_SCHEDULES}
_KINDS = {"WorkflowRun": "workflowruns", "Schedule": "schedules"}


def release_of(reads: int) -> str:
    """The release whose operators read the state versions up to one; each has its own."""
    return f"0.{reads}.0"


def as_known(obj: Object) -> Object:
    """An object as today's version would have written it."""
    plural = _KINDS.get(obj.get("kind", ""), "")
    return _signed(plural, obj, lambda state: state.pop(FIELD)) if plural and FIELD in _state(obj) else obj


def _as_newer(plural: str, obj: Object) -> Object:
    """An object that a newer operator is about to write, in its form."""
    if not _state(obj) or version_of(obj["status"]) < NEWER:
        return obj
    number = obj["status"]["commit"]["number"]
    return _signed(plural, obj, lambda state: state.update({FIELD: number}))


def _state(obj: Object) -> Object:
    found: Object = (obj.get("status") or {}).get("state") or {}
    return found


def _signed(plural: str, obj: Object, change: Callable[[Object], Any]) -> Object:
    """An object with another state, and a digest of it under the number of its commit."""
    status = status_encoding.decode({"kind": "WorkflowRun", "status": obj["status"]})["status"]
    state, commit = dict(status["state"]), status["commit"]
    change(state)
    unsigned = {key: value for key, value in status.items() if key != "commit"} | {"state": state}
    signed = committed(unsigned, _COVERED[plural], commit["uid"], commit["number"] - 1)
    return {**obj, "status": status_encoding.encode(signed) if plural == "workflowruns" else signed}


class NewerSession(FaultySession):
    """The connections of an operator of a newer version."""

    async def exchange(self, request: Request) -> Response:
        """Send a request in the newer form, and return its response in today's."""
        response = await super().exchange(self._translated(request))
        if f'"{FIELD}"'.encode() not in response.body:
            return response
        found = orjson.loads(response.body)
        if "items" in found:
            kind = found["kind"].removesuffix("List")
            found["items"] = [{**as_known({**each, "kind": kind})} for each in found["items"]]
        else:
            found = as_known(found)
        return replace(response, body=orjson.dumps(found))

    def _translated(self, request: Request) -> Request:
        *_, plural, _, last = ["", "", *request.url.split("/")]
        if request.method != "PUT" or last != "status" or plural not in _COVERED:
            return request
        return replace(request, body=orjson.dumps(_as_newer(plural, orjson.loads(request.body))))


@dataclass
class Life:
    """A process of the operator."""

    reads: int
    """The newest state version that it reads."""
    begin: float
    end: float | None = None
    """When it was killed."""


@dataclass
class Presence:
    """The time for which the other operators had reason to count on an operator."""

    name: str
    reads: int
    begin: float
    end: float
    """Without a fleet, the end of the process; in a fleet, the last renewal of the Lease."""
    exists: bool = True
    """Whether its process or its Lease exists."""


class Forms:
    """Observes every write, and reports what an operator changes that it cannot read, and what it writes too early.

    In a fleet, an operator is present as long as its Lease is renewed. Before that, it decides nothing: it may need half a minute
    to read all objects, in spite of faults.
    """

    def __init__(self, lives: Mapping[str, Life], fail: Callable[[str], None], *, fleet: bool) -> None:
        """Create it.

        Args:
            lives: All processes of operators, by name.
            fail: Takes what is wrong.
            fleet: Whether the operators have Leases.
        """
        self._lives = lives
        self._fail = fail
        self._is_fleet = fleet
        self._members: list[Presence] = []
        """All Leases of the fleet that there were, by the time of their creation."""
        self.finishing = False
        """Whether the upgrade was finished on request."""
        self.written: dict[int, int] = {}
        """How many statuses were written in each state version."""
        self.met = 0
        """How often an operator has reported what it cannot read."""

    def observe(self, write: Write) -> None:
        """Check a write."""
        life = self._lives.get(write.actor)
        if write.key.plural == "leases":
            self._note_lease(write)
        if life is None or write.key.plural in {"configmaps", "leases"}:
            return
        before, after = _version_in(write.before), _version_in(write.after)
        if before > life.reads:
            self._check_unread(write)
        elif write.type != "DELETED" and after > max(before, OLDEST):
            self._check_time(write, after)
        if write.type == "MODIFIED":
            self.written[after] = self.written.get(after, 0) + 1

    def _check_unread(self, write: Write) -> None:
        """Check a change of an object that its writer cannot read."""
        if write.delete_requested or write.before is None:
            self._report(write, "is deleted by an operator that cannot read it")
            return
        before, after = (_without_conditions(each.get("status") or {}) for each in (write.before, write.after))
        if FIELD in _state(write.before) and FIELD not in _state(write.after):
            self._report(write, f"loses `state.{FIELD}`, which a newer version has written")
        elif before != after or write.before.get("spec") != write.after.get("spec"):
            self._report(write, "is changed by an operator that cannot read it")
        elif write.before.get("status") != write.after.get("status"):
            self.met += 1

    def _note_lease(self, write: Write) -> None:
        """Note that a Lease of the fleet was created, renewed, or deleted."""
        if FLEET_LABEL not in (write.after["metadata"].get("labels") or {}):
            return
        name, reads = write.key.name, read_lease(write.after, _LEASE_SECONDS).reads
        if write.type == "ADDED":
            self._members.append(Presence(name, reads, write.time, write.time))
            return
        (lease,) = (each for each in self._members if each.name == name and each.exists)
        if write.type == "DELETED":
            lease.exists = False
        elif write.actor == name:
            lease.end = write.time

    def _present(self, now: float) -> list[Presence]:
        """All operators that there were, and when."""
        if self._is_fleet:
            return self._members
        lives = self._lives.items()
        return [
            Presence(name, each.reads, each.begin, now if each.end is None else each.end, each.end is None)
            for name, each in lives
        ]

    def _check_time(self, write: Write, version: int) -> None:
        """Check that no operator that cannot read a version is left, and that none was during the hold-back."""
        now, present = write.time, self._present(write.time)
        writer = next((each for each in reversed(present) if each.name == write.actor), None)
        if writer is None or now - writer.end > _LEASE_SECONDS:
            return  # it has decided this before it was suspended, and does not know the others
        for each in present:
            if each.reads >= version:
                continue
            is_left = each.exists and now - each.end < _LEASE_SECONDS
            met = each.end - max(each.begin, writer.begin) > _NOTICED
            if is_left and now - each.begin > _NOTICED:
                self._report(write, f"gets state version {version}, which {each.name} cannot read")
            elif self.finishing or now - each.end > HOLD_BACK - _RESOLUTION:
                continue
            elif met or each.end - each.begin > _RECORDED:
                self._report(
                    write, f"gets state version {version} before the end of the hold-back: {each.name} was there"
                )

    def _report(self, write: Write, wrong: str) -> None:
        self._fail(f"{write.time:.3f} {write.actor}: {write.key.plural} {write.key.name} {wrong}")


def _version_in(obj: Object | None) -> int:
    """The state version of an object; 1 if it has none."""
    parts = ((obj or {}).get(part) for part in ("status", "spec"))
    return max(version_of(each) if isinstance(each, dict) else OLDEST for each in parts)


def _without_conditions(status: Object) -> Object:
    return {key: value for key, value in status.items() if key != "conditions"}
