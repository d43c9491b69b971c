"""Find and store the results of activities in the Kubernetes API."""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog

from perdure.api.artifactset import HolderKind
from perdure.controller.artifacts.holders import RunArtifacts, hold_for
from perdure.kube import client as kube
from perdure.observe import metrics
from perdure.runtime.cached_results import CacheKey, is_newer, too_large

_FORBIDDEN: Final = 403
_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERROR: Final = 500


class NotStoredError(Exception):
    """A result cannot be stored, and another try would not help."""


class StoredResults:
    """The CachedResults of a namespace."""

    def __init__(self, client: kube.Client, namespace: str) -> None:
        self._client = client
        self._namespace = namespace
        self._log = structlog.get_logger("perdure.cache").bind(namespace=namespace)

    async def find(
        self, key: CacheKey, max_age: timedelta, now: datetime, artifacts: RunArtifacts
    ) -> kube.Object | None:
        """Find a result, and keep the artifacts that it refers to for the run that uses it; None if there is none.

        Args:
            key: Identity of the result.
            max_age: Its maximum age.
            now: The time.
            artifacts: The artifacts that the run needs.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        found = await self._usable(key, max_age, now)
        if found is not None and not await artifacts.hold(msgspec.json.encode(found["spec"])):
            await self._remove(found)  # its artifacts were deleted, so that it can only be replaced
            found = None
        self._count("Miss" if found is None else "Hit")
        return found

    async def store(self, key: CacheKey, body: kube.Object, max_age: timedelta, now: datetime) -> None:
        """Store a result, unless another run has just stored one. Its artifacts are kept as long as it exists.

        Args:
            key: Identity of the result.
            body: The CachedResult.
            max_age: Its maximum age.
            now: The time.

        Raises:
            NotStoredError: It is too large, or the API server rejects it.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        problem = too_large(body)
        if not problem:
            try:
                await self._store(key, body, max_age, now)
            except kube.ApiError as error:
                if error.status >= _SERVER_ERROR or error.status == _TOO_MANY_REQUESTS:
                    raise
                problem = error.message
        if problem:
            raise NotStoredError(problem)

    def count_not_stored(self) -> None:
        """Count a result that is not stored."""
        self._count("NotStored")

    async def _store(self, key: CacheKey, body: kube.Object, max_age: timedelta, now: datetime) -> None:
        try:
            await self._create(body)
        except kube.AlreadyExistsError:
            existing = await self._usable(key, max_age, now)
            if existing is not None:  # also after an earlier try of this call
                await hold_for(self._client, HolderKind.CACHED_RESULT, existing)
                return
            await self._replace(key, body)

    async def _replace(self, key: CacheKey, body: kube.Object) -> None:
        """Replace a result that cannot be used.

        Raises:
            NotStoredError: A newer version has stored it.
        """
        with suppress(kube.NotFoundError, kube.UnreadableError):
            if is_newer(await self._client.get(self._url(key.name))):
                raise NotStoredError(f"a newer version of Perdure has stored CachedResult `{key.name}`")
        await self._client.delete(self._url(key.name))
        with suppress(kube.AlreadyExistsError):
            await self._create(body)

    async def _create(self, body: kube.Object) -> None:
        stored = await self._client.create(self._url(), body)
        self._count("Stored")
        await hold_for(self._client, HolderKind.CACHED_RESULT, stored)

    async def _usable(self, key: CacheKey, max_age: timedelta, now: datetime) -> kube.Object | None:
        try:
            found = await self._client.get(self._url(key.name))
        except kube.NotFoundError:
            return None
        except kube.ApiError as error:
            if error.status != _FORBIDDEN and not isinstance(error, kube.UnreadableError):
                raise
            self._log.warning("Could not look for a cached result", name=key.name, error=error.message)
            return None
        return found if key.finds(found, max_age, now) else None

    async def _remove(self, cached: kube.Object) -> None:
        meta = cached["metadata"]
        self._log.info("The artifacts of a cached result were deleted", name=meta["name"])
        await self._client.delete(self._url(meta["name"]), uid=meta["uid"])

    def _count(self, outcome: str) -> None:
        metrics.RESULT_CACHE.labels(self._namespace, outcome).inc()

    def _url(self, name: str | None = None) -> str:
        return kube.path(kube.PERDURE, self._namespace, "cachedresults", name)
