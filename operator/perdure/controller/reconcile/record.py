"""The commit: an object, a run or a schedule, as it is known here, and the one write that takes it further.

A write is a JSON patch of the status that also replaces `resourceVersion` with itself. If anyone has written since the object was
read, the API server answers 409 and nothing has happened: the pass reads again and decides again. So two operators cannot corrupt
a run, and one whose answer was lost finds at its next write that the last one was done.
"""

import asyncio
import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from perdure.kube import client as kube
from perdure.kube.patch import Operation, json_patch
from perdure.observe import metrics

Status = dict[str, Any]
"""The `status` of an object, as JSON."""

_FRESH_SECONDS: Final = 0.5
"""How long an object counts as current after the request was sent that has shown it so. What is done by it is sent within that
time, also by a process that has stood still meanwhile."""


def encoded(status: Status) -> bytes:
    """A status as it is stored."""
    return msgspec.json.encode(status)


class Record:
    """An object as the API server has it, as far as is known: read from watch events, written by compare-and-swap."""

    def __init__(self, client: kube.Client, obj: kube.Object, plural: str = "workflowruns") -> None:
        meta = obj["metadata"]
        self.object = obj
        self.status: Status = obj.get("status") or {}
        self.gone = False
        """It was deleted, and is never written again."""
        self._confirmed = -math.inf
        """Time of the loop at which the last request was sent that has shown the object to be current."""
        self._client = client
        self._url = kube.path(kube.PERDURE, meta["namespace"], plural, meta["name"])
        self._version: str = meta["resourceVersion"]
        self._newest = self._version

    @property
    def outdated(self) -> bool:
        """Whether a watch has shown something newer than what is known here."""
        return self._newest != self._version and not kube.older(self._newest, self._version)

    def observe(self, obj: kube.Object) -> bool:
        """A watch shows the run; whether that is news: our own writes come back too, some before their answers."""
        self._newest = obj["metadata"]["resourceVersion"]
        return self.outdated

    def latest(self) -> kube.Object:
        """The object as it was last written or read here."""
        meta = {**self.object["metadata"], "resourceVersion": self._version}
        return {**self.object, "metadata": meta, "status": self.status}

    async def write(self, status: Status) -> None:
        """Commit: replace the status, if nobody else has written since it was read.

        Raises:
            ConflictError: somebody has, or has deleted the run.
            TooLargeError: the object would be larger than the API server takes.
        """
        operations = [self._unchanged]
        if "status" in self.object or self.status:
            operations += json_patch(self.status, status, "/status")
        else:
            operations.append({"op": "add", "path": "/status", "value": status})
        sent = _time()
        try:
            answer = await self._client.patch(f"{self._url}/status", operations)
        except kube.NotFoundError as error:
            # Deleted meanwhile: the same as any other change by somebody else.
            raise kube.ConflictError(error.status, error.reason, error.message) from error
        except kube.InvalidError as error:
            # A patch of what has changed meanwhile may fit nowhere, which is found before the versions are compared.
            if await self._has_changed():
                raise kube.ConflictError(error.status, error.reason, error.message) from error
            raise
        metrics.COMMITS.inc()
        self._version = answer["metadata"]["resourceVersion"]
        self.status = status
        self._confirmed = sent

    async def mark(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
        """Give the object labels and annotations, if nobody else has written since it was read.

        Raises:
            ConflictError: somebody has.
        """
        meta = self.object["metadata"]
        wanted = {
            "labels": {**(meta.get("labels") or {}), **labels},
            "annotations": {**(meta.get("annotations") or {}), **annotations},
        }
        changed = {field: value for field, value in wanted.items() if value != (meta.get(field) or {})}
        if not changed:
            return
        operations = [{"op": "add", "path": f"/metadata/{field}", "value": value} for field, value in changed.items()]
        answer = await self._client.patch(self._url, [self._unchanged, *operations])
        self._version = answer["metadata"]["resourceVersion"]
        self.object = {**self.object, "metadata": {**meta, **changed}}

    def doubt(self) -> None:
        """Take nothing as current any more: a new pass begins, and the last one may be long ago."""
        self._confirmed = -math.inf

    async def confirm(self, *, afresh: bool = False) -> None:
        """Make sure that what was read is still so, before anything is made, stopped, released or removed by it.

        What this process has committed or confirmed just now needs no request.

        Args:
            afresh: Send a request in any case: something was seen that may be newer than what was confirmed before.

        Raises:
            ConflictError: it is not, or the object was deleted.
        """
        if afresh:
            self.doubt()
        while _time() - self._confirmed >= _FRESH_SECONDS:
            sent = _time()
            try:
                await self._client.patch(f"{self._url}/status", [self._unchanged])
            except kube.NotFoundError as error:
                raise kube.ConflictError(error.status, error.reason, error.message) from error
            self._confirmed = sent

    async def read_again(self) -> bool:
        """Take what the API server has now; whether the status is another than the one known here."""
        sent = _time()
        try:
            fresh = await self._client.get(self._url)
        except kube.NotFoundError:
            self.gone = True
            return False
        meta = fresh["metadata"]
        if meta["uid"] != self.object["metadata"]["uid"] or meta.get("deletionTimestamp"):
            self.gone = True
            return False
        self.object = fresh
        self._confirmed = sent
        self._version = self._newest = meta["resourceVersion"]
        before, self.status = self.status, fresh.get("status") or {}
        return bool(self.status != before)

    async def _has_changed(self) -> bool:
        try:
            fresh = await self._client.get(self._url)
        except kube.NotFoundError:
            return True
        return bool(fresh["metadata"]["resourceVersion"] != self._version)

    @property
    def _unchanged(self) -> Operation:
        return {"op": "replace", "path": "/metadata/resourceVersion", "value": self._version}


def _time() -> float:
    return asyncio.get_running_loop().time()
