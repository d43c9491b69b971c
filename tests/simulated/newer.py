"""Operators of a newer version: today's, with one more field in every state of a run and of a Schedule that they write.

A newer operator is today's code behind a translation: what it writes gets the field, and a digest that covers it; what it reads
loses the field again. So to every other client, it knows a field that today's version does not know.

`Forms` checks every write: an operator of today's version must change nothing but conditions in what a newer one has written.
"""

from collections.abc import Callable
from typing import Any

import orjson
from msgspec.structs import replace

from perdure.runtime import status_texts
from perdure.runtime.commits import OF_RUNS, OF_SCHEDULES, committed
from perdure.simulation.cluster.apiserver import Request, Response
from perdure.simulation.cluster.store import Object, Write
from simulated.network import FaultySession

FIELD = "sinceNewer"
"""The field of the newer version: the number of the commit that wrote it."""
_COVERED = {"workflowruns": OF_RUNS, "schedules": OF_SCHEDULES}
_KINDS = {"WorkflowRun": "workflowruns", "Schedule": "schedules"}


def as_known(obj: Object) -> Object:
    """An object as today's version would have written it."""
    plural = _KINDS.get(obj.get("kind", ""), "")
    return _signed(plural, obj, lambda state: state.pop(FIELD)) if plural and FIELD in _state(obj) else obj


def _as_newer(plural: str, obj: Object) -> Object:
    """An object that a newer operator is about to write, in its form."""
    if not _state(obj):
        return obj
    number = obj["status"]["commit"]["number"]
    return _signed(plural, obj, lambda state: state.update({FIELD: number}))


def _state(obj: Object) -> Object:
    found: Object = (obj.get("status") or {}).get("state") or {}
    return found


def _signed(plural: str, obj: Object, change: Callable[[Object], Any]) -> Object:
    """An object with another state, and a digest of it under the number of its commit."""
    status = status_texts.decode({"kind": "WorkflowRun", "status": obj["status"]})["status"]
    state, commit = dict(status["state"]), status["commit"]
    change(state)
    unsigned = {key: value for key, value in status.items() if key != "commit"} | {"state": state}
    signed = committed(unsigned, _COVERED[plural], commit["uid"], commit["number"] - 1)
    return {**obj, "status": status_texts.encode(signed) if plural == "workflowruns" else signed}


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


class Forms:
    """Observes every write, and reports what an operator of today's version changes in the form of a newer one."""

    def __init__(self, today: Callable[[str], bool], fail: Callable[[Write, str], None]) -> None:
        """`today`: whether the client with a name is an operator of today's version; `fail` takes what is wrong."""
        self._today = today
        self._fail = fail
        self.newer = 0
        """How many writes were in the newer form."""
        self.met = 0
        """How often an operator of today's version has reported what it cannot read."""

    def observe(self, write: Write) -> None:
        """Check a write."""
        if write.key.plural not in _COVERED:
            return
        if write.delete_requested and FIELD in _state(write.after) and self._today(write.actor):
            self._fail(write, "is deleted by an operator that cannot read it")
        if write.type != "MODIFIED" or write.before is None:
            return
        self.newer += FIELD in _state(write.after)
        if FIELD not in _state(write.before) or not self._today(write.actor):
            return
        before, after = (_without_conditions(each["status"]) for each in (write.before, write.after))
        if FIELD not in _state(write.after):
            self._fail(write, f"loses `state.{FIELD}`, which a newer version has written")
        elif before != after:
            self._fail(write, "is changed by an operator that cannot read it")
        elif write.before["status"] != write.after["status"]:
            self.met += 1


def _without_conditions(status: Object) -> Object:
    return {key: value for key, value in status.items() if key != "conditions"}
