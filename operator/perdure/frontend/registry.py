"""Settings in one ConfigMap per namespace: one entry per name, as JSON."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Generic, TypeAlias, TypeVar

import msgspec
import structlog

from perdure.api.stored import decode_known, is_known
from perdure.controller.state_versions import state_versions
from perdure.frontend.errors import exhausted, namespace_not_found, precondition, unavailable
from perdure.kube import client as kube
from perdure.kube.clock import now

_KEPT = timedelta(minutes=5)
"""Minimum time for which a ConfigMap is cached."""
_MANY = 1_000
"""Maximum number of cached namespaces before unused ones are dropped."""
_TRIES = 20
_MAX_KEY = 253
_log = structlog.get_logger("perdure.frontend.registry")

Entry = TypeVar("Entry")
Entries: TypeAlias = Mapping[str, Entry]
"""The entries by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryKind(Generic[Entry]):
    """The kind of entries in a registry."""

    type: type[Entry]
    noun: str
    """The singular name of an entry in messages."""
    config_map: str
    """Name of the ConfigMap."""
    fresh: timedelta
    """How long a cached ConfigMap is used: changes by other operators or with `kubectl` are seen within this time."""
    check: Callable[[Entry], None] = lambda _: None
    """Raises ValueError if a decoded entry is invalid."""


class NamespaceRegistry(Generic[Entry]):
    """Reads and writes the entries of namespaces."""

    def __init__(
        self,
        kind: EntryKind[Entry],
        client: kube.Client,
        changed: Callable[[str], None],
        *,
        written: Callable[[kube.Object, Entries[Entry], Entries[Entry]], None] = lambda *_: None,
    ) -> None:
        """Create a registry.

        Args:
            kind: The kind of entries.
            client: The client of the API server.
            changed: Called with a namespace whose entries have changed since the last read.
            written: Called after a change with the stored ConfigMap, and the entries before and after.
        """
        self._kind = kind
        self._client = client
        self._changed = changed
        self._written = written
        self._read: dict[str, tuple[datetime, Entries[Entry]]] = {}
        self._reading: dict[str, asyncio.Task[kube.Object]] = {}
        """The pending request of each namespace, which concurrent readers share."""
        self._many = _MANY
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """Serializes the changes of a namespace, so that the cache has the last write."""

    def is_known(self, namespace: str) -> bool:
        """Whether the entries were read."""
        return namespace in self._read

    def known(self, namespace: str) -> Entries[Entry]:
        """Return the cached entries."""
        return self._read[namespace][1] if namespace in self._read else {}

    async def load(self, namespace: str) -> Entries[Entry]:
        """Return the entries.

        Raises:
            RpcError: The API server did not answer, and no earlier answer is known.
        """
        try:
            return await self.read(namespace)
        except kube.RequestError as error:
            raise unavailable(str(error)) from error

    async def read(self, namespace: str) -> Entries[Entry]:
        """Return the entries.

        Raises:
            RequestError: The API server did not answer, and no earlier answer is known.
        """
        read = self._read.get(namespace)
        if read is not None and now() - read[0] < self._kind.fresh:
            return read[1]
        reading = self._reading.get(namespace)
        if reading is None:
            reading = asyncio.get_running_loop().create_task(self._get(namespace), name=self._kind.config_map)
            self._reading[namespace] = reading
            reading.add_done_callback(partial(self._forget_read, namespace))
        try:
            found = self._decoded(await asyncio.shield(reading))
        except kube.RequestError:
            if read is not None:
                return read[1]
            raise
        if self._read.get(namespace) is not read:  # a change ended in the meantime, which this read may have missed
            return self.known(namespace)
        return self._learn(namespace, found)

    def _forget_read(self, namespace: str, read: "asyncio.Task[kube.Object]") -> None:
        """Forget a read, and its error: everyone who waited for it may have gone."""
        del self._reading[namespace]
        if not read.cancelled():
            read.exception()

    async def reload(self, namespace: str) -> None:
        """Read the entries of a namespace again, if they were read before.

        Raises:
            RpcError: The API server does not respond.
        """
        read = self._read.get(namespace)
        if read is not None:
            self._read[namespace] = read[0] - self._kind.fresh, read[1]
            await self.load(namespace)

    async def change(self, namespace: str, change: Callable[[Entries[Entry]], Entries[Entry]]) -> Entries[Entry]:
        """Change the entries; nothing is written if `change` returns them unchanged.

        Raises:
            RpcError: `change` raises it, the ConfigMap is full, or the API server does not respond.
        """
        try:
            async with self._locks[namespace]:
                for _ in range(_TRIES):
                    with suppress(kube.AlreadyExistsError, kube.ConflictError):
                        return self._learn(namespace, await self._write(namespace, change))
        except kube.NotFoundError:
            raise namespace_not_found(namespace) from None
        except (kube.InvalidError, kube.TooLargeError) as error:
            raise exhausted(f"the {self._kind.noun}s of the namespace cannot be stored: {error.message}") from error
        except kube.RequestError as error:
            raise unavailable(str(error)) from error
        raise unavailable(f"ConfigMap {self._kind.config_map} changes too often")

    async def _write(self, namespace: str, change: Callable[[Entries[Entry]], Entries[Entry]]) -> Entries[Entry]:
        found = await self._get(namespace)
        stored, meta = found.get("data") or {}, found.get("metadata") or {}
        before = self._decoded(found)
        after = change(before)
        if after == before:
            return before
        if why := state_versions().unreadable_settings(meta):
            message = f"a newer version of Perdure has written ConfigMap {self._kind.config_map} ({why})"
            raise unavailable(f"{message}: this operator leaves it as it is")
        # Keep an invalid entry until someone fixes it.
        unread = {key: value for key, value in stored.items() if _name(key) not in before}
        for name in after.keys() & {_name(key) for key in unread}:
            raise precondition(
                f"{self._kind.noun} '{name}' cannot be read: fix or delete its entry in the ConfigMap {self._kind.config_map}"
            )
        changed = {name: each for name, each in after.items() if before.get(name) != each}
        for name in changed.keys() & before.keys():
            if not is_known(stored[_key(name)], self._kind.type):
                raise unavailable(
                    f"a newer version of Perdure has written {self._kind.noun} '{name}': this operator leaves it as it is"
                )
        kept = {_key(name): stored[_key(name)] for name in after.keys() - changed.keys()}
        data = {**unread, **kept, **{_key(name): msgspec.json.encode(each).decode() for name, each in changed.items()}}
        meta = state_versions().annotate(meta or {"name": self._kind.config_map, "namespace": namespace})
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        if found:
            stored = await self._client.replace(_url(namespace, self._kind.config_map), body)
        else:
            stored = await self._client.create(_url(namespace), body)
        self._written(stored, before, after)
        return after

    async def _get(self, namespace: str) -> kube.Object:
        try:
            return await self._client.get(_url(namespace, self._kind.config_map))
        except kube.NotFoundError:
            return {}

    def _learn(self, namespace: str, entries: Entries[Entry]) -> Entries[Entry]:
        before = self._read.get(namespace)
        if before is None and len(self._read) >= self._many:
            self._forget()
        self._read[namespace] = now(), entries
        if before is None or before[1] != entries:
            self._changed(namespace)
        return entries

    def _forget(self) -> None:
        """Drop the entries of namespaces that were not used for a while. They are read again on the next request."""
        since = now() - _KEPT
        self._read = {namespace: read for namespace, read in self._read.items() if read[0] > since}
        for namespace in [each for each, lock in self._locks.items() if each not in self._read and not lock.locked()]:
            del self._locks[namespace]
        self._many = max(_MANY, 2 * len(self._read))

    def _decoded(self, config_map: kube.Object) -> dict[str, Entry]:
        """The entries of a ConfigMap, as far as this version knows them. One that cannot be decoded is logged and ignored."""
        entries = {}
        for key, value in (config_map.get("data") or {}).items():
            try:
                entry = decode_known(value, self._kind.type)
                self._kind.check(entry)
            except (msgspec.MsgspecError, ValueError) as error:
                _log.warning(f"A {self._kind.noun} cannot be read", name=_name(key), error=str(error))
            else:
                entries[_name(key)] = entry
        return entries


def _url(namespace: str, name: str | None = None) -> str:
    return kube.path(kube.CORE, namespace, "configmaps", name)


def fits_key(name: str) -> bool:
    """Whether the escaped name of an entry can be a key of a ConfigMap."""
    return len(_key(name)) <= _MAX_KEY


def _key(name: str) -> str:
    """The key of an entry. Dots in its name are escaped, because a dot begins an escaped byte."""
    return re.sub(r"[^-_a-zA-Z0-9]", lambda found: "".join(f".{byte:02x}" for byte in found[0].encode()), name)


def _name(key: str) -> str:
    raw = re.sub(rb"\.([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), key.encode())
    return raw.decode(errors="replace")
