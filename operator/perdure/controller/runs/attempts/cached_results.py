"""The results of attempts that later attempts can use: stored once they are recorded, and found before an attempt starts."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog

from perdure.api.kinds.artifactset import HolderKind
from perdure.controller.artifacts import RunArtifacts, hold_for
from perdure.controller.pods.attempt_pods import PodKey, scope_of
from perdure.controller.reconcile.refusals import pause
from perdure.controller.runs.attempts.definitions import ActivityDefinitions
from perdure.controller.state_versions import state_versions
from perdure.engine.inputs import AttemptCompleted, AttemptInput
from perdure.engine.state import PendingActivity, RunState
from perdure.kube import client as kube
from perdure.language.keys import cache_key
from perdure.language.step_failures import StepError
from perdure.observe import metrics
from perdure.runtime.attempts import RunRef
from perdure.runtime.cached_results import CacheKey, build_cached_result, newer_part, too_large

_MAX_TRIES: Final = 5
"""How often the operator tries to store a result. A result that is not stored costs only time later."""
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
        self.count("Miss" if found is None else "Hit")
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
            found = await self._client.get(self._url(key.name))
            if why := newer_part(found, state_versions().reads):
                raise NotStoredError(f"a newer version of Perdure has stored CachedResult `{key.name}` ({why})")
        await self._client.delete(self._url(key.name))
        with suppress(kube.AlreadyExistsError):
            await self._create(body)

    async def _create(self, body: kube.Object) -> None:
        stored = await self._client.create(self._url(), state_versions().stamp_spec(body))
        self.count("Stored")
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
        is_newer = bool(newer_part(found, state_versions().reads))
        return found if not is_newer and key.matches(found, max_age, now) else None

    async def _remove(self, cached: kube.Object) -> None:
        meta = cached["metadata"]
        self._log.info("The artifacts of a cached result were deleted", name=meta["name"])
        await self._client.delete(self._url(meta["name"]), uid=meta["uid"])

    def count(self, outcome: str) -> None:
        """Count a look-up or a result by its outcome."""
        metrics.RESULT_CACHE.labels(self._namespace, outcome).inc()

    def _url(self, name: str | None = None) -> str:
        return kube.path(kube.PERDURE, self._namespace, "cachedresults", name)


@dataclass(frozen=True, slots=True)
class _FoundResult:
    """An earlier result that an attempt can use."""

    key: CacheKey
    max_age: timedelta
    cached: kube.Object
    completed: AttemptCompleted


@dataclass(slots=True)
class _NewResult:
    """The result of an attempt that later attempts can use."""

    key: CacheKey
    max_age: timedelta
    step: str
    completed: AttemptCompleted
    time: datetime
    """When it was recorded, from which its age counts."""
    tries: int = 0
    due: datetime | None = None
    """When to try again; None before the first try."""


class CachedAttempts:
    """Looks for earlier results before attempts start, and stores the results of attempts once they are recorded."""

    def __init__(
        self,
        client: kube.Client,
        run: RunRef,
        definitions: ActivityDefinitions,
        artifacts: RunArtifacts,
        uncached: Callable[[str], None],
    ) -> None:
        """Create it without results.

        Args:
            client: The client of the API server.
            run: The run.
            definitions: The definitions of its activities.
            artifacts: The artifacts that it needs.
            uncached: Called with the reason why a result was not stored.
        """
        self._run = run
        self._definitions = definitions
        self._artifacts = artifacts
        self._report_uncached = uncached
        self._results = StoredResults(client, run.namespace)
        self._found: list[_FoundResult] = []
        self._unrecorded: dict[PodKey, _NewResult] = {}
        self._unstored: list[_NewResult] = []

    # Earlier results

    async def find(self, activity: PendingActivity, now: datetime) -> bool:
        """Look for an earlier result of an attempt that has no pod; return whether there is one.

        Raises:
            StepError: The key has no value.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        wanted = self._key(activity)
        if wanted is None:
            return False
        found = await self._results.find(*wanted, now, self._artifacts)
        if found is None:
            return False
        key, spec = PodKey.of(activity), found["spec"]
        completed = AttemptCompleted(
            scheduled_event_id=key.scheduled_event_id,
            attempt=key.attempt,
            result=spec.get("result"),
            artifacts=spec.get("artifacts") or {},
            cached=found["metadata"]["name"],
        )
        self._found.append(_FoundResult(*wanted, found, completed))
        return True

    @property
    def any_found(self) -> bool:
        """Whether there are earlier results that were not reported to the engine yet."""
        return bool(self._found)

    def found(self, now: datetime) -> list[AttemptCompleted]:
        """The earlier results, as inputs of the engine; each is reported once.

        A result is recorded with this time, and requests after it was found may have taken long. One that has become too old
        since then is dropped: its attempt looks again, and starts.

        Args:
            now: The time.
        """
        found, self._found = self._found, []
        return [each.completed for each in found if each.key.matches(each.cached, each.max_age, now)]

    # New results

    @property
    def settled(self) -> bool:
        """Whether no result must be stored."""
        return not self._unstored

    def observe(self, state: RunState, observed: Iterable[AttemptInput], now: datetime) -> None:
        """Note the results of pods, which the next commit may record with this time."""
        self._unrecorded.clear()
        for each in observed:
            activity = state.activity(each.scheduled_event_id)
            if activity is None or not isinstance(each, AttemptCompleted):
                continue
            with suppress(StepError):  # the definition of code's activities may have changed since the attempt began
                if (wanted := self._key(activity)) is not None:
                    self._unrecorded[PodKey.of(activity)] = _NewResult(*wanted, activity.activity_id, each, now)

    def recorded(self, key: PodKey) -> None:
        """Store the result of an attempt, because a commit has recorded it."""
        result = self._unrecorded.pop(key, None)
        if result is not None:
            self._unstored.append(result)

    async def store(self, now: datetime) -> None:
        """Try to store the recorded results. A failed request does not delay the run: it is repeated later, a few times."""
        for new in [each for each in self._unstored if each.due is None or each.due <= now]:
            new.tries += 1
            body = build_cached_result(new.key, self._run, new.step, new.completed, new.time, new.time + new.max_age)
            try:
                await self._results.store(new.key, body, new.max_age, now)
            except NotStoredError as error:
                self._give_up(new, str(error))
            except kube.RequestError as error:
                if new.tries < _MAX_TRIES:
                    new.due = now + pause(new.tries)
                    continue
                self._give_up(new, f"the Kubernetes API request failed {new.tries} times: {error}")
            self._unstored.remove(new)

    def next_tries(self) -> list[datetime]:
        """When to try again to store results."""
        return [each.due for each in self._unstored if each.due is not None]

    def _give_up(self, new: _NewResult, why: str) -> None:
        self._results.count("NotStored")
        self._report_uncached(f"Step {new.step}: the result is not cached: {why}")

    def forget(self) -> None:
        """Drop the results that are not stored, because the run was deleted."""
        self._unstored.clear()

    def _key(self, activity: PendingActivity) -> tuple[CacheKey, timedelta] | None:
        """Identify the result of an attempt, and return its maximum age; None if it is not cached."""
        definition = self._definitions.of(activity)
        if definition.cache is None:
            return None
        attempt = self._definitions.attempt(activity)
        key = cache_key(definition, input=attempt.input, run=scope_of(self._run), attempt=attempt.attempt)
        return (CacheKey.of(definition, key), definition.cache.max_age) if key else None
