"""Large payloads, as blobs: stored before the commit that refers to them, with each referring run as an owner.

    commit refers to a blob that ─┬─ has its bytes here      ─▶ create its Payloads, owned by the run  ─┐
                                  └─ another run has created ─▶ add the run to its owners              ─┴─▶ write the status

A client's start refers to a blob before its run exists. The blob has the label `perdure.dev/unclaimed` until the run owns it.
A blob that keeps the label for a while belongs to a run that was never created, and is removed.

Some readers cannot follow a reference: YAML workflows, and runs of other namespaces. Both get the value itself, inlined, if it
fits into the status of a run.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from perdure.api.labels import UNCLAIMED_LABEL
from perdure.controller.fleet.shards import Shards
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.reconcile.record import Status, encoded
from perdure.controller.state_versions import state_versions
from perdure.controller.workers import Workers
from perdure.engine import inputs
from perdure.engine.payloads import plain, referred_to
from perdure.kube import client as kube
from perdure.kube.clock import now, until_next_poll
from perdure.observe import metrics
from perdure.runtime import blobs
from perdure.runtime.attempts import RunRef, payload_too_large
from perdure.runtime.blobs import Reference, reference_in

_CACHED: Final = 64 * 1024 * 1024
"""Maximum size of the cached blobs, in bytes."""
_AT_ONCE: Final = 16
"""Maximum number of concurrent requests for blobs."""
_LOOK_SECONDS: Final = 300.0
_UNCLAIMED_FOR: Final = timedelta(minutes=10)
"""How long a blob may have no owner. After that time it belongs to no run, because every waiting run was reconciled."""


_log = structlog.get_logger("perdure.blobs")


class NewerBlobError(kube.RequestError):
    """A newer version has stored a blob, and this one cannot read it. Another operator can, so that clients retry."""


class LostBlobError(Exception):
    """A blob was deleted or changed. The message says which."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A blob that was created and has no owner yet."""

    name: str
    uid: str
    version: str
    """The resourceVersion. A newer one shows that a run has adopted the blob."""


class Cache:
    """A cache of recently written or read blobs. Evicts the oldest of the namespace with the most."""

    def __init__(self, max_bytes: int = _CACHED) -> None:
        """Create a cache of at most `max_bytes`."""
        self._max_bytes = max_bytes
        self._kept: dict[str, OrderedDict[str, bytes]] = {}
        self._bytes: dict[str, int] = {}

    def get(self, namespace: str, name: str) -> bytes | None:
        """The bytes of a blob, if they are cached."""
        kept = self._kept.get(namespace)
        if kept is None or name not in kept:
            return None
        kept.move_to_end(name)
        return kept[name]

    def put(self, namespace: str, name: str, content: bytes) -> None:
        """Cache the bytes of a blob."""
        kept = self._kept.setdefault(namespace, OrderedDict())
        before = kept.pop(name, b"")
        kept[name] = content
        self._bytes[namespace] = self._bytes.get(namespace, 0) + len(content) - len(before)
        while sum(self._bytes.values()) > self._max_bytes:
            fullest = max(self._bytes, key=lambda each: self._bytes[each])
            _, dropped = self._kept[fullest].popitem(last=False)
            self._bytes[fullest] -= len(dropped)
            if not self._kept[fullest]:
                del self._kept[fullest], self._bytes[fullest]


class Blobs:
    """The blobs of all runs."""

    def __init__(self, client: kube.Client) -> None:
        self._client = client
        self.cache = Cache()
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def save(self, namespace: str, reference: Reference, owned_by: Mapping[str, Any] | None) -> Saved | None:
        """Store a blob, or complete one whose storing was interrupted.

        Args:
            namespace: The namespace.
            reference: The reference, with the bytes of the blob.
            owned_by: The owner reference to the run; None if the run is about to be created.

        Returns:
            The blob; None if it already existed.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        first = blobs.first_part(reference, namespace, dict(owned_by) if owned_by is not None else None)
        saved = None
        async with self._places:
            try:
                meta = (await self._client.create(_url(namespace), state_versions().stamp_spec(first)))["metadata"]
                saved = Saved(reference.name, meta["uid"], meta["resourceVersion"])
                metrics.BLOBS.inc()
            except kube.AlreadyExistsError:
                meta = (await self._client.metadata(_url(namespace, reference.name)))["metadata"]
            for part in blobs.further_parts(reference, namespace, meta["uid"]):
                with suppress(kube.AlreadyExistsError):
                    await self._client.create(_url(namespace), state_versions().stamp_spec(part))
        if saved is None and owned_by is not None:
            await add_owner(self._client, namespace, reference.name, owned_by)
        return saved

    async def add_owner(self, namespace: str, name: str, owned_by: Mapping[str, Any]) -> None:
        """Make a run an owner of a blob, within the limit of concurrent requests."""
        async with self._places:
            await add_owner(self._client, namespace, name, owned_by)

    async def load(self, namespace: str, reference: Mapping[str, Any]) -> bytes:
        """Return the bytes of a blob.

        Raises:
            LostBlobError: The blob was deleted or changed.
            NewerBlobError: Only a newer version can read the blob.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        if isinstance(reference, Reference) and reference.content is not None:
            return reference.content
        name = reference["name"]
        content = self.cache.get(namespace, name)
        if content is not None:
            return content
        parts = []
        async with self._places:
            for number in range(blobs.parts_of(reference["sizeBytes"])):
                part = blobs.part_name(name, number)
                try:
                    parts.append(await self._client.get(_url(namespace, part)))
                except kube.NotFoundError:
                    raise LostBlobError(f"Payload `{part}` is missing: it was deleted") from None
        if why := next(filter(None, (state_versions().unreadable(each["spec"]) for each in parts)), ""):
            raise NewerBlobError(f"a newer version of Perdure has stored Payload `{name}` ({why})")
        content = blobs.joined(parts, reference["hash"])
        if content is None:
            raise LostBlobError(f"Payload `{name}` was replaced: it does not have the recorded hash")
        self.cache.put(namespace, name, content)
        return content

    async def remove(self, namespace: str, saved: Saved) -> None:
        """Remove a blob that no run refers to, unless a run has adopted it since.

        Raises:
            RequestError: The Kubernetes API request failed.
        """
        await self._client.delete(_url(namespace, saved.name), uid=saved.uid, version=saved.version)

    async def remove_unclaimed_forever(self, served: ServedNamespaces, shards: Shards) -> None:
        """Remove blobs of runs that were never created, until cancelled.

        Args:
            served: The served namespaces.
            shards: The shards, so that only one member of a fleet does it.
        """
        before: dict[Saved, datetime] = {}
        while True:
            found: dict[Saved, datetime] = {}
            for namespace in served if shards.owns("", "unclaimed-payloads") else ():
                with suppress(kube.RequestError):
                    await self._remove_unclaimed(namespace, before, found)
            before = found
            await until_next_poll(_LOOK_SECONDS)

    async def _remove_unclaimed(
        self, namespace: str | None, before: Mapping[Saved, datetime], found: dict[Saved, datetime]
    ) -> None:
        time = now()
        async for each in self._client.lists.each_metadata(_url(namespace), labelSelector=UNCLAIMED_LABEL):
            meta = each["metadata"]
            blob = Saved(meta["name"], meta["uid"], meta["resourceVersion"])
            since = found[blob] = before.get(blob, time)
            if since + _UNCLAIMED_FOR <= time:
                await self.remove(meta["namespace"], blob)


class BlobsOfRun:
    """The blobs that one run's commits refer to."""

    def __init__(self, store: Blobs, run: RunRef) -> None:
        self._store = store
        self._run = run
        self._saved: dict[str, tuple[Saved, int]] = {}
        """The blobs of a commit whose success is unknown, each with the number of segments of the history."""
        self._left_over: dict[str, tuple[Saved, int]] = {}

    async def store(self, text: bytes, before: Status, carried: tuple[Any, ...]) -> list[Reference]:
        """Store or adopt the blobs that a status refers to and the previous status did not.

        Args:
            text: The status to write, as JSON.
            before: The stored status.
            carried: Events and state with the bytes that are not stored yet.

        Returns:
            The argument for `committed`.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        names = set(referred_to(text))
        if not names:
            return []
        names -= referred_to(encoded(before)).keys()
        if not names:
            return []
        here = {each.name: each for each in blobs.with_content(carried) if each.name in names}
        try:
            async with asyncio.TaskGroup() as group:
                for name in sorted(names):
                    group.create_task(self._store_one(name, here.get(name), before))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return list(here.values())

    async def _store_one(self, name: str, reference: Reference | None, before: Status) -> None:
        if name in self._left_over:
            self._saved[name] = self._left_over.pop(name)
        if name in self._saved:
            return  # its commit has failed, and is repeated
        owned_by = blobs.owner(self._run.name, self._run.uid)
        if reference is None:
            await self._store.add_owner(self._run.namespace, name, owned_by)
            return
        saved = await self._store.save(self._run.namespace, reference, owned_by)
        if saved is not None:
            self._saved[name] = saved, _segments(before)

    def committed(self, stored: Iterable[Reference]) -> None:
        """Record a successful commit. Its blobs stay cached for the worker that needs them soon.

        Blobs of earlier failed commits are unused, because these commits can no longer succeed.
        """
        for reference in stored:
            if reference.content is not None:
                self._store.cache.put(self._run.namespace, reference.name, reference.content)
                reference.content = None
            self._saved.pop(reference.name, None)
        self._left_over |= self._saved
        self._saved = {}

    async def tidy(self, status: Status) -> None:
        """Remove the blobs of failed commits. A blob that may be in use stays until its run is deleted.

        Call it only while no request is pending, because a request may refer to a blob.

        Args:
            status: The stored status.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        if not self._left_over:
            return
        used = referred_to(encoded(status)).keys()
        for name, (saved, segments) in list(self._left_over.items()):
            # A commit whose response was lost may have been sealed since then, so that no status contains it.
            if name not in used and segments == _segments(status):
                await self._store.remove(self._run.namespace, saved)
            del self._left_over[name]


async def add_owner(client: kube.Client, namespace: str, name: str, owned_by: Mapping[str, Any]) -> None:
    """Make a run an owner of a blob. If the blob was deleted, reading it reports that later.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    url = _url(namespace, name)
    while True:
        try:
            operations = _adoption((await client.metadata(url))["metadata"], owned_by)
            if operations:
                await client.patch(url, operations)
        except kube.NotFoundError:
            _log.warning("A run refers to a Payload that no longer exists", namespace=namespace, payload=name)
        except (kube.ConflictError, kube.InvalidError):
            continue
        return


async def add_owner_to_all(client: kube.Client, run: kube.Object) -> None:
    """Make a run an owner of all blobs that it starts with, because the run that created it may be deleted first.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    for name in blobs.in_manifest(run):
        await add_owner(client, run["metadata"]["namespace"], name, blobs.owner_of(run))


def _adoption(meta: Mapping[str, Any], owned_by: Mapping[str, Any]) -> list[kube.Operation]:
    """Build the patch that adds an owner; empty if the run is already an owner."""
    owners = meta.get("ownerReferences") or []
    labels = meta.get("labels") or {}
    if any(each.get("uid") == owned_by["uid"] for each in owners) and UNCLAIMED_LABEL not in labels:
        return []
    others = [each for each in owners if each.get("uid") != owned_by["uid"]]
    operations: list[kube.Operation] = [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
        {"op": "add", "path": "/metadata/ownerReferences", "value": [*others, dict(owned_by)]},
    ]
    if UNCLAIMED_LABEL in labels:
        kept = {key: value for key, value in labels.items() if key != UNCLAIMED_LABEL}
        operations.append({"op": "add", "path": "/metadata/labels", "value": kept})
    return operations


def _segments(status: Status) -> int:
    return int((status.get("history") or {}).get("segments", 0))


def _url(namespace: str | None, name: str | None = None) -> str:
    return kube.path(kube.PERDURE, namespace, "payloads", name)


_FIELDS: Mapping[type[Any], tuple[str, ...]] = {
    inputs.SignalRequested: ("input",),
    inputs.ActivityReported: ("result", "heartbeat_details"),
    inputs.ActivityHeartbeat: ("details",),
    inputs.ChildClosed: ("result",),
    inputs.OperationEnded: ("result",),
}


@dataclass(frozen=True, slots=True)
class Inlined:
    """The inputs of a run, without the references that it cannot follow."""

    values: list[inputs.RunInput]
    refused: inputs.RunInput | None = None
    """A request that does not fit into the run."""
    reason: str = ""


async def inlined(
    observed: Sequence[inputs.RunInput], namespace: str, blobs: Blobs, workers: Workers, *, code: bool
) -> Inlined:
    """Replace references in the inputs of a run by values, if the run cannot follow the references.

    Args:
        observed: The original inputs.
        namespace: Namespace of the run.
        blobs: Reads large payloads.
        workers: Decodes large payloads.
        code: Whether workers decide the run; workers follow references within their namespace.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    converted: list[inputs.RunInput] = []
    for each in observed:
        origin = each.handler_namespace if isinstance(each, inputs.OperationEnded) else namespace
        if code and origin == namespace:
            converted.append(each)
            continue
        try:
            converted.append(await _inlined(each, origin, blobs, workers))
        except (ValueError, LostBlobError) as error:
            failure = payload_too_large(f"{error}; store the data elsewhere and pass a reference to it")
            match each:
                case inputs.ActivityReported():
                    converted.append(replace(each, result=None, heartbeat_details=None, failure=failure))
                case inputs.ChildClosed():
                    converted.append(replace(each, outcome=inputs.ChildOutcome.FAILED, result=None, failure=failure))
                case _:
                    return Inlined(list(observed), each, failure.message)
    return Inlined(converted)


async def output_of(run: kube.Object, blobs: Blobs, workers: Workers) -> Any:
    """Return the output of a run as a value, or the reference itself if that is not possible.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    output = (run.get("status") or {}).get("output")
    reference = reference_in(output)
    if reference is None:
        return output
    try:
        return plain(workers.inlined(await blobs.load(run["metadata"]["namespace"], reference)))
    except (ValueError, LostBlobError):
        return output


async def _inlined(item: inputs.RunInput, namespace: str, blobs: Blobs, workers: Workers) -> inputs.RunInput:
    values = {}
    for field in _FIELDS.get(type(item), ()):
        reference = reference_in(getattr(item, field))
        if reference is not None:
            value = workers.inlined(await blobs.load(namespace, reference))
            values[field] = plain(value) if isinstance(item, inputs.ChildClosed) else value
    return replace(item, **values) if values else item
