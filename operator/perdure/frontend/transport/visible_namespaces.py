"""Which namespaces a caller sees in a list: those that it may describe."""

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from perdure.frontend.errors import exhausted
from perdure.frontend.transport.admission import Rate
from perdure.frontend.transport.guard import KNOWN_FOR, BoundedCache, Guard, User, holds, tenant_of
from perdure.frontend.transport.rights import Right, needed
from perdure.kube.clock import now

if TYPE_CHECKING:
    from datetime import datetime

_NEEDED = needed("DescribeNamespace")
_OF_CLUSTER = ((Right("list", "namespaces", group=""),), _NEEDED)
"""Permissions for the whole cluster, each of which is enough to see all namespaces."""
_MAX_KNOWN = 1_000
_PARALLEL = 4
"""Parallel reviews for all lists together: the others of the connections are for the reviews of other calls."""
_LISTS_PER_SECOND, _LISTS_BURST = 1.0, 20
"""Limits for lists that are not cached, per tenant."""


class VisibleNamespaces:
    """Finds the namespaces that callers may describe, and caches them for as long as a permission.

    A caller with permissions for the whole cluster takes one or two reviews, any other one more for each namespace.
    """

    def __init__(self, guard: Guard) -> None:
        """`guard` reviews permissions."""
        self._guard = guard
        self._known: BoundedCache[User, tuple[datetime, frozenset[str] | None]] = BoundedCache(_MAX_KNOWN)
        """The namespaces of a caller, and until when they are cached; None: all namespaces."""
        self._reviews: dict[User, asyncio.Task[frozenset[str] | None]] = {}
        """The pending review of each caller, which its concurrent calls share."""
        self._places = asyncio.Semaphore(_PARALLEL)
        self._rate = Rate(_LISTS_PER_SECOND, _LISTS_BURST)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Lets one list of each tenant be reviewed at a time, so that many lists of one do not delay those of others."""

    async def among(self, user: User, names: Sequence[str]) -> Sequence[str]:
        """Return the namespaces that a user may describe, in the given order.

        Raises:
            RpcError: There are too many lists to review, or the API server does not respond.
        """
        known = self._known.get(user)
        if known is not None and holds(known[0], now(), KNOWN_FOR):
            visible = known[1]
        else:
            visible = await asyncio.shield(self._review(user, names))  # other calls may wait for it
        return names if visible is None else [name for name in names if name in visible]

    def _review(self, user: User, names: Collection[str]) -> "asyncio.Task[frozenset[str] | None]":
        review = self._reviews.get(user)
        if review is None:
            if not self._rate.take(tenant_of(user), now()):
                raise exhausted(f"too many lists of namespaces for {user.name} to review; retry later")
            review = self._reviews[user] = asyncio.create_task(self._in_turn(user, names), name="visible namespaces")
            review.add_done_callback(lambda done: self._reviewed(user, done))
        return review

    def _reviewed(self, user: User, review: "asyncio.Task[frozenset[str] | None]") -> None:
        del self._reviews[user]
        if not review.cancelled() and review.exception() is None:
            self._known.put(user, (now() + KNOWN_FOR, review.result()))

    async def _in_turn(self, user: User, names: Collection[str]) -> frozenset[str] | None:
        async with self._turns.setdefault(tenant_of(user), asyncio.Lock()):
            return await self._visible(user, names)

    async def _visible(self, user: User, names: Collection[str]) -> frozenset[str] | None:
        for rights in _OF_CLUSTER:
            if await self._may(user, "", rights):
                return None
        visible, left = set(), iter(names)

        async def review() -> None:
            for name in left:
                if await self._may(user, name, _NEEDED):
                    visible.add(name)

        await asyncio.gather(*(review() for _ in range(_PARALLEL)))
        return frozenset(visible)

    async def _may(self, user: User, namespace: str, rights: Collection[Right]) -> bool:
        for right in rights:
            async with self._places:
                if not await self._guard.review_access(user, namespace, right):
                    return False
        return True
