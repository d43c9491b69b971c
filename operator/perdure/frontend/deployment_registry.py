"""The worker deployments of each namespace, in a ConfigMap of it."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec
import structlog

from perdure.frontend.deployments import Deployment, Deployments
from perdure.frontend.errors import exhausted, namespace_not_found, precondition, unavailable
from perdure.kube import client as kube
from perdure.kube.clock import now

CONFIG_MAP = "perdure-worker-deployments"
"""Name of the ConfigMap."""
_FRESH = timedelta(seconds=10)
"""How long a ConfigMap that was read counts: a change by another operator, or with `kubectl`, takes effect within this time."""
_KEPT = timedelta(minutes=5)
"""How long a ConfigMap that was read is remembered at least."""
_MANY = 1_000
"""So many namespaces are remembered without a look at whether somebody still asks about them."""
_TRIES = 20
_MAX_KEY = 253
_log = structlog.get_logger("perdure.frontend.deployments")


class DeploymentRegistry:
    """Reads and writes the worker deployments of namespaces."""

    def __init__(
        self,
        client: Callable[[], kube.Client],
        changed: Callable[[str], None],
        written: Callable[[kube.Object, Deployments, Deployments], None],
    ) -> None:
        """Create a registry.

        Args:
            client: Returns the client of the API server.
            changed: Called with a namespace whose deployments are no longer as they were when last read.
            written: Called after a change with the ConfigMap as stored, and the deployments before and after.
        """
        self._client = client
        self._changed = changed
        self._written = written
        self._read: dict[str, tuple[datetime, Deployments]] = {}
        self._reading: dict[str, asyncio.Task[kube.Object]] = {}
        """Those who ask about a namespace at the same time share one request."""
        self._many = _MANY
        self._changing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """One change of a namespace at a time, so that the last one to be learned is the last one that was written."""

    def is_known(self, namespace: str) -> bool:
        """Whether the deployments were read."""
        return namespace in self._read

    def known(self, namespace: str) -> Deployments:
        """Return the deployments as they were last read."""
        return self._read[namespace][1] if namespace in self._read else {}

    async def load(self, namespace: str) -> Deployments:
        """Return the deployments.

        Raises:
            RpcError: the API server did not answer, and no earlier answer is known.
        """
        try:
            return await self.read(namespace)
        except (kube.ApiError, *kube.TRANSIENT) as error:
            raise unavailable(str(error)) from error

    async def read(self, namespace: str) -> Deployments:
        """Return the deployments.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server did not answer, and no earlier answer is known.
        """
        read = self._read.get(namespace)
        if read is not None and now() - read[0] < _FRESH:
            return read[1]
        reading = self._reading.get(namespace)
        if reading is None:
            reading = asyncio.get_running_loop().create_task(self._get(namespace), name="worker deployments")
            self._reading[namespace] = reading
            reading.add_done_callback(lambda _: self._reading.pop(namespace))
        try:
            found = _decoded(await asyncio.shield(reading))
        except (kube.ApiError, *kube.TRANSIENT):
            if read is not None:
                return read[1]
            raise
        if self._read.get(namespace) is not read:  # a change ended meanwhile, which this read may not have seen
            return self.known(namespace)
        return self._learn(namespace, found)

    async def change(self, namespace: str, change: Callable[[Deployments], Deployments]) -> Deployments:
        """Change the deployments; what `change` leaves as it is costs no write.

        Raises:
            RpcError: `change` raises it, the ConfigMap is full, or the API server does not respond.
        """
        try:
            async with self._changing[namespace]:
                for _ in range(_TRIES):
                    with suppress(kube.AlreadyExistsError, kube.ConflictError):
                        return self._learn(namespace, await self._write(namespace, change))
        except kube.NotFoundError:
            raise namespace_not_found(namespace) from None
        except (kube.InvalidError, kube.TooLargeError) as error:
            raise exhausted(f"the worker deployments of the namespace cannot be stored: {error.message}") from error
        except (kube.ApiError, *kube.TRANSIENT) as error:
            raise unavailable(str(error)) from error
        raise unavailable(f"ConfigMap {CONFIG_MAP} changes too often")

    async def _write(self, namespace: str, change: Callable[[Deployments], Deployments]) -> Deployments:
        found = await self._get(namespace)
        before = _decoded(found)
        after = change(before)
        if after == before:
            return before
        # An entry that cannot be read stays as it is until someone fixes it.
        unread = {key: value for key, value in (found.get("data") or {}).items() if _name(key) not in before}
        for name in after.keys() & {_name(key) for key in unread}:
            raise precondition(
                f"worker deployment '{name}' cannot be read: fix or delete its entry in the ConfigMap {CONFIG_MAP}"
            )
        data = {**unread, **{_key(name): msgspec.json.encode(each).decode() for name, each in after.items()}}
        meta = found.get("metadata") or {"name": CONFIG_MAP, "namespace": namespace}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        if found:
            stored = await self._client().replace(_url(namespace, CONFIG_MAP), body)
        else:
            stored = await self._client().create(_url(namespace), body)
        self._written(stored, before, after)
        return after

    async def _get(self, namespace: str) -> kube.Object:
        try:
            return await self._client().get(_url(namespace, CONFIG_MAP))
        except kube.NotFoundError:
            return {}

    def _learn(self, namespace: str, deployments: Deployments) -> Deployments:
        before = self._read.get(namespace)
        if before is None and len(self._read) >= self._many:
            self._forget()
        self._read[namespace] = now(), deployments
        if before is None or before[1] != deployments:
            self._changed(namespace)
        return deployments

    def _forget(self) -> None:
        """Forget the namespaces that nobody has asked about for a while; their deployments are read again when somebody does."""
        since = now() - _KEPT
        self._read = {namespace: read for namespace, read in self._read.items() if read[0] > since}
        for namespace in [
            each for each, lock in self._changing.items() if each not in self._read and not lock.locked()
        ]:
            del self._changing[namespace]
        self._many = max(_MANY, 2 * len(self._read))


def _url(namespace: str, name: str | None = None) -> str:
    return kube.path(kube.CORE, namespace, "configmaps", name)


def fits_key(name: str) -> bool:
    """Whether the name of a deployment can be a key of a ConfigMap, escaped."""
    return len(_key(name)) <= _MAX_KEY


def _key(name: str) -> str:
    """The key of a deployment. Its name has no dot, so that a dot can begin an escaped byte."""
    return re.sub(r"[^-_a-zA-Z0-9]", lambda found: "".join(f".{byte:02x}" for byte in found[0].encode()), name)


def _name(key: str) -> str:
    raw = re.sub(rb"\.([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), key.encode())
    return raw.decode(errors="replace")


def _decoded(found: kube.Object) -> Deployments:
    """The deployments of a ConfigMap. One that cannot be read is reported, and routes nothing."""
    deployments = {}
    for key, value in (found.get("data") or {}).items():
        try:
            each = msgspec.json.decode(value, type=Deployment)
        except msgspec.MsgspecError as error:
            _log.warning("A worker deployment cannot be read", deployment=_name(key), error=str(error))
            continue
        routed = {each.current, each.ramping} - {"", None}
        if routed <= each.versions.keys():
            deployments[_name(key)] = each
        else:
            _log.warning("A worker deployment routes to versions that it does not have", deployment=_name(key))
    return deployments
