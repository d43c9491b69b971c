"""Authentication and authorization: the API server checks tokens and permissions, and the results are cached briefly."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypeVar, overload

from perdure.frontend.errors import RpcError, denied, exhausted, unauthenticated, unavailable
from perdure.frontend.transport.admission import Rate
from perdure.frontend.transport.bearer import NoTokenError, bearer_of, claims_of
from perdure.frontend.transport.rights import FREE, Right, needed, remedy
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.observe import metrics

_AUTHENTICATION = "/apis/authentication.k8s.io/v1"
_AUTHORIZATION = "/apis/authorization.k8s.io/v1"
KNOWN_FOR = timedelta(seconds=30)
"""Maximum time for which a revoked token or permission stays valid."""
_REFUSED_FOR = timedelta(seconds=2)
"""How long a missing permission is cached."""
_INVALID_FOR = timedelta(seconds=10)
"""How long a rejected token is cached."""
_MAX_KNOWN = 10_000
_REVIEWS_PER_SECOND, _REVIEWS_BURST = 50.0, 500
_REVIEWS_PER_SECOND_OF_ADDRESS, _REVIEWS_BURST_OF_ADDRESS = 5.0, 50
"""Limits for tokens that were never valid, per address."""
_RIGHTS_PER_SECOND_OF_USER, _RIGHTS_BURST_OF_USER = 50.0, 500

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class User:
    """The user of a token, according to the API server."""

    name: str
    uid: str
    groups: tuple[str, ...]


_SERVICE_ACCOUNT = "system:serviceaccount:"


def tenant_of(user: User | None) -> str:
    """Who shares limits: all ServiceAccounts of a namespace; any other user alone."""
    if user is None:
        return ""
    if user.name.startswith(_SERVICE_ACCOUNT):
        return user.name.removeprefix(_SERVICE_ACCOUNT).partition(":")[0]
    return f"user {user.name}"


class Guard:
    """Authenticates callers and checks their permissions.

    Requests to the API server are avoided: obviously invalid tokens are rejected immediately, results are cached, and tokens
    that were never valid share a rate limit, in total and per address. The limit does not apply to tokens that were valid before,
    so that strangers cannot lock out workers.
    """

    def __init__(self, client: kube.Client, audience: str, *, cluster_tokens: bool = False) -> None:
        """`client` sends reviews on its own connections. Tokens must be for `audience`, or optionally for the API server."""
        self._client = client
        self._audience = audience
        self._cluster_tokens = cluster_tokens
        self._users: BoundedCache[bytes, tuple[datetime, User]] = BoundedCache(_MAX_KNOWN)
        self._refused: BoundedCache[bytes, datetime] = BoundedCache(_MAX_KNOWN)
        self._rights: BoundedCache[tuple[User, str, Right], tuple[datetime, bool]] = BoundedCache(_MAX_KNOWN)
        self._reviews: dict[bytes, asyncio.Task[User | None]] = {}
        self._rate = Rate(_REVIEWS_PER_SECOND, _REVIEWS_BURST)
        self._rate_of_address = Rate(_REVIEWS_PER_SECOND_OF_ADDRESS, _REVIEWS_BURST_OF_ADDRESS)
        self._rate_of_user = Rate(_RIGHTS_PER_SECOND_OF_USER, _RIGHTS_BURST_OF_USER)

    async def authenticate(self, metadata: Sequence[tuple[str, str | bytes]], address: str) -> User:
        """Authenticate the caller by the token in the metadata of an RPC.

        Args:
            metadata: The metadata of the RPC.
            address: The address of the caller.

        Raises:
            RpcError: The token is not valid, there are too many tokens to review, or the API server does not respond.
        """
        token = bearer_of(metadata)
        if not token:
            raise unauthenticated("a ServiceAccount token is needed: `authorization: Bearer <token>`")
        key, time = hashlib.sha256(token.encode(errors="replace")).digest(), now()
        known = self._users.get(key)
        if known is not None and holds(known[0], time, KNOWN_FOR):
            return known[1]
        user = None
        refused_until = self._refused.get(key)
        if refused_until is None or not holds(refused_until, time, _INVALID_FOR):
            audience = self._audience_of(token, time)
            user = await self._reviewed(key, token, audience, None if known is not None else address)
        if user is None:
            raise unauthenticated("the token is not, or no longer, that of a ServiceAccount of this cluster")
        return user

    async def authorize(self, user: User, rpc: str, namespace: str | None) -> None:
        """Check that a user may call an RPC.

        Args:
            user: The caller.
            rpc: The name of the RPC.
            namespace: The namespace of the request; None if it has none.

        Raises:
            RpcError: The user may not call the RPC.
        """
        if rpc in FREE:
            return
        for right in needed(rpc):
            if not await self._may(user, namespace or "", right):
                raise denied(_refusal(user, rpc, namespace, right))

    def _audience_of(self, token: str, time: datetime) -> str:
        """The audience for the review of a token; empty: the API server's own."""
        try:
            claims = claims_of(token, time)
        except NoTokenError as error:
            raise unauthenticated(f"the token is not valid: {error}") from None
        if self._audience in claims.audiences:
            return self._audience
        if self._cluster_tokens:
            return ""
        raise unauthenticated(
            f"the token is not for the audience {self._audience!r}: use a projected token of that audience, or "
            f"`kubectl create token SERVICEACCOUNT --audience={self._audience}`"
        )

    async def _reviewed(self, key: bytes, token: str, audience: str, stranger: str | None) -> User | None:
        """The user of a token according to the API server. `stranger`: the caller's address, if the token was never valid."""
        review = self._reviews.get(key)
        if review is None:
            time = now()
            if stranger is not None and not (self._rate_of_address.take(stranger, time) and self._rate.take("", time)):
                metrics.TOKEN_REVIEWS.labels(outcome="Limited").inc()
                raise exhausted("too many new tokens to review; retry later")
            review = self._reviews[key] = asyncio.create_task(self._review(key, token, audience), name="token review")
            review.add_done_callback(lambda done: self._reviewed_now(key, done))
        return await asyncio.shield(review)  # other callers may wait for it if this one disconnects

    def _reviewed_now(self, key: bytes, review: asyncio.Task[User | None]) -> None:
        del self._reviews[key]
        if not review.cancelled():
            review.exception()  # mark the exception as retrieved, because all waiting callers may have disconnected

    async def _review(self, key: bytes, token: str, audience: str) -> User | None:
        spec = {"token": token, **({"audiences": [audience]} if audience else {})}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        try:
            status = (await self._ask(f"{_AUTHENTICATION}/tokenreviews", body)).get("status") or {}
        except RpcError:
            metrics.TOKEN_REVIEWS.labels(outcome="Unavailable").inc()
            raise
        # An authenticator without support for audiences returns none, so its tokens were not issued for this audience.
        if not status.get("authenticated") or (audience and audience not in (status.get("audiences") or ())):
            metrics.TOKEN_REVIEWS.labels(outcome="Invalid").inc()
            self._users.pop(key)
            self._refused.put(key, now() + _INVALID_FOR)
            return None
        metrics.TOKEN_REVIEWS.labels(outcome="Valid").inc()
        reviewed = status.get("user") or {}
        user = User(reviewed.get("username", ""), reviewed.get("uid", ""), tuple(reviewed.get("groups") or ()))
        self._users.put(key, (now() + KNOWN_FOR, user))
        return user

    async def _may(self, user: User, namespace: str, right: Right) -> bool:
        key = user, namespace, right
        known = self._rights.get(key)
        if known is None or not holds(known[0], now(), KNOWN_FOR if known[1] else _REFUSED_FOR):
            if known is None and not self._rate_of_user.take(user.name, now()):
                raise exhausted(f"too many permissions of {user.name} to review; retry later")
            other = right.of_frontend
            allowed = await self.review_access(user, namespace, right) or (
                other is not None and await self.review_access(user, namespace, other)
            )
            known = now() + (KNOWN_FOR if allowed else _REFUSED_FOR), allowed
            self._rights.put(key, known)
        return known[1]

    async def review_access(self, user: User, namespace: str, right: Right) -> bool:
        """Ask the API server whether a user has a right. The answer is not cached.

        Args:
            user: The user.
            namespace: The namespace; empty: in all namespaces.
            right: The right.

        Raises:
            RpcError: The API server does not respond.
        """
        attributes = {
            "namespace": namespace,
            "verb": right.verb,
            "group": right.group,
            "resource": right.resource,
            "subresource": right.subresource,
        }
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.name,
                "uid": user.uid,
                "groups": list(user.groups),
                "resourceAttributes": attributes,
            },
        }
        answer = await self._ask(f"{_AUTHORIZATION}/subjectaccessreviews", body)
        return bool((answer.get("status") or {}).get("allowed"))

    async def _ask(self, url: str, body: kube.Object) -> kube.Object:
        try:
            return await self._client.create(url, body)
        except kube.RequestError as error:
            raise unavailable(f"the API server could not review the token: {error}") from error


def holds(until: datetime, time: datetime, longest: timedelta) -> bool:
    """Whether a cached answer holds. It does not if the clock was set back to a time before it arrived."""
    return until - longest <= time <= until


def _refusal(user: User, rpc: str, namespace: str | None, right: Right) -> str:
    """The message about a missing permission, with the permission to grant."""
    what = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
    where = f" in namespace {namespace!r}" if namespace else ""
    other = "; or the namespace does not exist" if namespace else ""
    return f"{user.name} cannot {right.verb} {what}{where}, which {rpc} requires: {remedy(user.name, namespace, right)}{other}"


class BoundedCache(Generic[K, V]):
    """A cache with a maximum number of entries; the oldest are dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[K, V] = OrderedDict()

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V) -> V: ...
    def get(self, key: K, default: V | None = None) -> V | None:
        """The value of a key."""
        return self._entries.get(key, default)

    def put(self, key: K, value: V) -> None:
        """Set the value of a key."""
        self._entries.pop(key, None)
        self._entries[key] = value
        if len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def pop(self, key: K) -> None:
        """Remove a key."""
        self._entries.pop(key, None)
