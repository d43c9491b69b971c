"""The commit: the last known state of an object, and its compare-and-swap write.

A write replaces the status of one `resourceVersion`. If another client has written since the object was read, the API server
returns 409 and changes nothing: the reconciliation reads the object and decides again. So two operators cannot corrupt a run, and
after a lost response, the next write finds that the last one succeeded. aiohttp repeats a PUT itself if the connection breaks, so
that the same write finds it, too: a conflict may be with one's own write.

The whole status is sent, because the API server then does the least work: for a patch, it encodes the stored object, patches it,
and decodes the result.

`write_status` is for statuses that are computed from the object and from other objects, without any further state. So nothing
needs to be merged: if another client has written the object, the status is computed again from the new version.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from perdure.kube import client as kube
from perdure.observe import metrics
from perdure.runtime import status_encoding

Status = dict[str, Any]
"""The `status` of an object, as JSON; of a run, with values in place of texts."""

_FRESH_SECONDS: Final = 0.5
"""How long an object counts as current after its request was sent. Effects are sent within that time, even by a process that
was suspended in between."""


def encoded(status: Status) -> bytes:
    """Encode a status."""
    return msgspec.json.encode(status)


class Record:
    """The last known state of an object: read from watch events, written by compare-and-swap."""

    def __init__(self, client: kube.Client, obj: kube.Object, plural: str = "workflowruns") -> None:
        meta = obj["metadata"]
        self.object = obj
        self.status: Status = obj.get("status") or {}
        self.deleted = False
        """Whether the object was deleted. It is never written again."""
        self._confirmed = -math.inf
        """Loop time of the last request whose response showed that the object is current."""
        self._client = client
        self._url = kube.path(kube.PERDURE, meta["namespace"], plural, meta["name"])
        self._has_texts = plural == "workflowruns"
        self._version: str = meta["resourceVersion"]
        self._newest = self._version

    @property
    def version(self) -> str:
        """The resourceVersion of the last version of the object that was written or read here."""
        return self._version

    @property
    def outdated(self) -> bool:
        """Whether a watch has reported a newer version."""
        return self._newest != self._version and not kube.older(self._newest, self._version)

    def update(self, obj: kube.Object) -> bool:
        """Process a watch event; return whether it is new. The watch also reports our own writes, some before their responses."""
        self._newest = obj["metadata"]["resourceVersion"]
        return self.outdated

    def latest(self) -> kube.Object:
        """The last version of the object that was written or read here."""
        meta = {**self.object["metadata"], "resourceVersion": self._version}
        return {**self.object, "metadata": meta, "status": self.status}

    async def write(self, status: Status, texts: status_encoding.Texts | None = None) -> None:
        """Commit: replace the status, unless another client has written since it was read.

        Args:
            status: The status.
            texts: What has already encoded its values, or some of them.

        Raises:
            ConflictError: Another client has written or deleted the object.
            TooLargeError: The object would be larger than the API server accepts.
        """
        stored = (texts or status_encoding.Texts()).encode(status) if self._has_texts else status
        sent = _time()
        try:
            answer = await self._client.set_status(self._url, self.latest(), stored)
        except kube.NotFoundError as error:
            # A deletion counts as a change by another client.
            raise kube.ConflictError(error.status, error.reason, error.message) from error
        metrics.COMMITS.inc()
        self._version = answer["metadata"]["resourceVersion"]
        self.status = status
        self._confirmed = sent

    async def mark(self, labels: Mapping[str, str], annotations: Mapping[str, str]) -> None:
        """Set labels and annotations, unless another client has written since the object was read.

        Raises:
            ConflictError: Another client has written or deleted the object.
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
        unchanged = {"op": "replace", "path": "/metadata/resourceVersion", "value": self._version}
        try:
            answer = await self._client.patch(self._url, [unchanged, *operations])
        except kube.NotFoundError as error:
            raise kube.ConflictError(error.status, error.reason, error.message) from error
        self._version = answer["metadata"]["resourceVersion"]
        self.object = {**self.object, "metadata": {**meta, **changed}}

    def unconfirm(self) -> None:
        """Treat the object as unconfirmed, because a new reconciliation begins."""
        self._confirmed = -math.inf

    async def confirm(self, *, afresh: bool = False) -> None:
        """Check that the object has not changed, before effects create, stop, release, or remove anything.

        An object that this process has just committed or confirmed needs no request.

        Args:
            afresh: Whether to always send a request, because an observation may be newer than the last confirmation.

        Raises:
            ConflictError: The object has changed or was deleted.
        """
        if afresh:
            self.unconfirm()
        while _time() - self._confirmed >= _FRESH_SECONDS:
            sent = _time()
            try:
                current = await self._client.stored(self._url)
            except kube.NotFoundError as error:
                raise kube.ConflictError(error.status, error.reason, error.message) from error
            if current.version != self._version:
                message = f"version {self._version} is not the current one, {current.version}"
                raise kube.ConflictError(409, "Conflict", message)
            self._confirmed = sent

    async def read_again(self) -> bool:
        """Read the object, and return whether its status has changed."""
        sent = _time()
        try:
            fresh = await self._client.get(self._url)
        except kube.NotFoundError:
            self.deleted = True
            return False
        meta = fresh["metadata"]
        if meta["uid"] != self.object["metadata"]["uid"] or meta.get("deletionTimestamp"):
            self.deleted = True
            return False
        self.object = fresh
        self._confirmed = sent
        self._version = self._newest = meta["resourceVersion"]
        before, self.status = self.status, fresh.get("status") or {}
        return bool(self.status != before)


def _time() -> float:
    return asyncio.get_running_loop().time()


async def write_status(
    client: kube.Client,
    url: str,
    compute: Callable[[kube.Object], Awaitable[kube.Object | None]],
    known: kube.Object | None = None,
) -> kube.Object | None:
    """Write the status of an object if it differs from the stored one, by compare-and-swap, until that succeeds.

    Args:
        client: Reads and writes the object.
        url: Path of the object.
        compute: Computes the status of an object; None: do not change it. Called again after each new read.
        known: The object as it was last read; None to read it first.

    Returns:
        The object with its status; None if it was deleted.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    obj = known
    while True:
        if obj is None:
            try:
                obj = await client.get(url)
            except kube.NotFoundError:
                return None
        status = await compute(obj)
        if status is None or status == (obj.get("status") or {}):
            return obj
        try:
            answer = await client.set_status(url, obj, status)
        except (kube.ConflictError, kube.NotFoundError):
            obj = None
        else:
            version = answer["metadata"]["resourceVersion"]
            return {**obj, "metadata": {**obj["metadata"], "resourceVersion": version}, "status": status}
