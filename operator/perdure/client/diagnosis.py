"""Reads objects of any kind, permissions, and the clock of the API server, for `doctor`."""

from __future__ import annotations

from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from perdure.kube import clock, errors, paths

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from datetime import datetime

    from perdure.client.requests import Object, Requests

_REVIEWS = "/apis/authorization.k8s.io/v1"
_RESOLUTION = timedelta(seconds=1)
"""The resolution of the time in an HTTP header."""


class Diagnosis:
    """Reads the data for the checks.

    All methods raise ForbiddenError if the user has no permission, and UnreachableError if the API server does not respond.
    """

    def __init__(self, requests: Requests) -> None:
        self.namespace = requests.namespace
        self._requests = requests

    async def read(self, url: str) -> Object | None:
        """Read an object, or anything else that is JSON; None if it does not exist."""
        found: Object | None = await self._requests.perform(_or_none(self._requests.client.get(url)))
        return found

    async def list(self, url: str, **selectors: str) -> Sequence[Object]:
        """Read all objects of a collection; empty if the API server does not serve the kind."""
        answer = _or_none(self._requests.client.list_all(url, **selectors))
        found: Sequence[Object] | None = await self._requests.perform(answer)
        return found or ()

    async def text(self, url: str) -> str | None:
        """Read text; None if it does not exist."""

        async def read() -> str:
            lines = [line async for line in self._requests.client.lines(url)]
            return b"\n".join(lines).decode(errors="replace")

        found: str | None = await self._requests.perform(_or_none(read()))
        return found

    async def allows(self, attributes: Object, *, user: str | None = None, groups: Sequence[str] = ()) -> bool:
        """Ask the API server whether a request would be permitted.

        Args:
            attributes: The `resourceAttributes` of the review.
            user: The user of the request; None for the caller.
            groups: The groups of the user.
        """
        kind, plural, whom = "SelfSubjectAccessReview", "selfsubjectaccessreviews", {}
        if user is not None:
            kind, plural, whom = "SubjectAccessReview", "subjectaccessreviews", {"user": user, "groups": list(groups)}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": kind,
            "spec": {"resourceAttributes": attributes, **whom},
        }
        requests = self._requests
        answer = await requests.perform(requests.client.create(paths.path(_REVIEWS, None, plural), body))
        return bool(answer["status"]["allowed"])

    async def skew(self) -> timedelta | None:
        """Measure how far the local clock is ahead of the clock of the API server; None if the API server does not send its time.

        Returns:
            The smallest difference that is consistent with the times of one request.
        """
        before = clock.now()
        await self.read("/version")
        after, theirs = clock.now(), self.server_time()
        if theirs is None:
            return None
        return max(before - theirs - _RESOLUTION, timedelta(0)) + min(after - theirs, timedelta(0))

    def server_time(self) -> datetime | None:
        """Return the time of the API server's last answer, to the second."""
        try:
            return parsedate_to_datetime(self._requests.client.date)
        except ValueError:
            return None


async def _or_none(answer: Awaitable[Any]) -> Any:
    try:
        return await answer
    except errors.NotFoundError:
        return None
