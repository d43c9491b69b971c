"""Authentication and authorization: bearer tokens, permissions, and the namespaces that a caller may list.

The API server checks tokens and permissions, and the results are cached briefly. Obviously invalid tokens are rejected without a
request to it.
"""

import asyncio
import base64
import binascii
import hashlib
from collections import OrderedDict
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar, overload
from weakref import WeakValueDictionary

import orjson

from perdure.frontend.errors import RpcError, denied, exhausted, unauthenticated, unavailable
from perdure.frontend.transport.rights import FREE, Right, needed, remedy
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.observe import metrics

_MAX_LENGTH = 8_192
"""Maximum length of a token, in characters; a ServiceAccount token has about 1,200."""
_LEEWAY = timedelta(minutes=1)
"""The clock skew that the API server tolerates."""
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
_SERVICE_ACCOUNT = "system:serviceaccount:"
_NEEDED = needed("DescribeNamespace")
_OF_CLUSTER = ((Right("list", "namespaces", group=""),), _NEEDED)
"""Permissions for the whole cluster, each of which is enough to see all namespaces."""
_MAX_CACHED = 1_000
_PARALLEL = 4
"""Parallel reviews for all lists together: the others of the connections are for the reviews of other calls."""
_LISTS_PER_SECOND, _LISTS_BURST = 1.0, 20
"""Limits for lists that are not cached, per tenant."""
_MAX_BUCKETS = 4_096
"""Maximum number of keys whose rate is tracked."""


class NoTokenError(ValueError):
    """A text cannot be a valid token; the message says why."""


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a token. They are not verified."""

    issuer: str
    audiences: tuple[str, ...]
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Provider:
    """An OIDC provider that the API server trusts, too.

    The API server does not tell for which client such a token was issued. But it verifies the signature of the claims, so these
    can be compared before the review.
    """

    issuer: str
    """Its URL: the claim `iss` of its tokens."""
    audiences: frozenset[str]
    """The client IDs for which it issues them, one of which the claim `aud` must have."""

    def issued(self, claims: Claims) -> bool:
        """Whether a token claims to be from this provider for one of the clients."""
        return claims.issuer.rstrip("/") == self.issuer.rstrip("/") and not self.audiences.isdisjoint(claims.audiences)


def bearer_of(metadata: Sequence[tuple[str, str | bytes]]) -> str:
    """The bearer token in the metadata of an RPC; empty if there is none."""
    header = next((value for key, value in metadata if key == "authorization"), "")
    text = header.decode(errors="replace") if isinstance(header, bytes) else header
    scheme, _, token = text.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def claims_of(token: str, time: datetime) -> Claims:
    """Read a token without verifying it.

    Args:
        token: A JSON Web Token, as the API server issues them.
        time: The current time.

    Raises:
        NoTokenError: The API server cannot accept the token.
    """
    if len(token) > _MAX_LENGTH:
        raise NoTokenError(f"it is longer than {_MAX_LENGTH:,} characters")
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):  # noqa: PLR2004 (header, claims, signature)
        raise NoTokenError("it is not a JSON Web Token")
    header, claims, _ = (_decode(part) for part in parts)
    if not isinstance(_json(header).get("alg"), str):
        raise NoTokenError("its header names no algorithm")
    values = _json(claims)
    issuer, audience, expires = values.get("iss"), values.get("aud", []), values.get("exp")
    if not isinstance(issuer, str) or not issuer:
        raise NoTokenError("it names no issuer")
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or not all(isinstance(each, str) for each in audiences):
        raise NoTokenError("its audience is not a list of names")
    if expires is not None and _time(expires) + _LEEWAY < time:
        raise NoTokenError("it has expired")
    subject = values.get("sub")
    return Claims(issuer, tuple(audiences), subject if isinstance(subject, str) else "")


def _decode(part: str) -> bytes:
    try:
        return base64.b64decode(part.encode("ascii") + b"=" * (-len(part) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise NoTokenError("it is not a JSON Web Token") from None


def _json(raw: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(raw)
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise NoTokenError("it is not a JSON Web Token")
    return found


def _time(seconds: Any) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError):
        raise NoTokenError("its expiry is not a time") from None


@dataclass(frozen=True, slots=True)
class User:
    """The user of a token, according to the API server."""

    name: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Other attributes that the authenticator gave, such as the pod of a ServiceAccount token: authorizers may decide by them."""


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

    def __init__(
        self, client: kube.Client, audience: str, *, provider: Provider | None = None, cluster_tokens: bool = False
    ) -> None:
        """Create it.

        Args:
            client: Sends reviews on its own connections.
            audience: The audience of ServiceAccount tokens.
            provider: Whose tokens are also accepted.
            cluster_tokens: Whether all tokens for the API server are also accepted.
        """
        self._client = client
        self._audience = audience
        self._provider = provider
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
        if known is not None and is_fresh(known[0], time, KNOWN_FOR):
            return known[1]
        user = None
        refused_until = self._refused.get(key)
        if refused_until is None or not is_fresh(refused_until, time, _INVALID_FOR):
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
        if self._cluster_tokens or (self._provider is not None and self._provider.issued(claims)):
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
            status = (await self._post(f"{_AUTHENTICATION}/tokenreviews", body)).get("status") or {}
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
        extra = tuple(sorted((key, tuple(values)) for key, values in (reviewed.get("extra") or {}).items()))
        user = User(reviewed.get("username", ""), reviewed.get("uid", ""), tuple(reviewed.get("groups") or ()), extra)
        self._users.put(key, (now() + KNOWN_FOR, user))
        return user

    async def _may(self, user: User, namespace: str, right: Right) -> bool:
        key = user, namespace, right
        known = self._rights.get(key)
        if known is None or not is_fresh(known[0], now(), KNOWN_FOR if known[1] else _REFUSED_FOR):
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
                "extra": {key: list(values) for key, values in user.extra},
                "resourceAttributes": attributes,
            },
        }
        answer = await self._post(f"{_AUTHORIZATION}/subjectaccessreviews", body)
        return bool((answer.get("status") or {}).get("allowed"))

    async def _post(self, url: str, body: kube.Object) -> kube.Object:
        try:
            return await self._client.create(url, body)
        except kube.RequestError as error:
            raise unavailable(f"the API server could not review the token: {error}") from error


def is_fresh(until: datetime, time: datetime, longest: timedelta) -> bool:
    """Whether a cached answer holds. It does not if the clock was set back to a time before it arrived."""
    return until - longest <= time <= until


def _refusal(user: User, rpc: str, namespace: str | None, right: Right) -> str:
    """The message about a missing permission, with the permission to grant."""
    what = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
    where = f" in namespace {namespace!r}" if namespace else ""
    other = "; or the namespace does not exist" if namespace else ""
    return f"{user.name} cannot {right.verb} {what}{where}, which {rpc} requires: {remedy(user.name, namespace, right)}{other}"


class VisibleNamespaces:
    """Finds the namespaces that callers may describe, and caches them for as long as a permission.

    A caller with permissions for the whole cluster takes one or two reviews, any other one more for each namespace.
    """

    def __init__(self, guard: Guard) -> None:
        """`guard` reviews permissions."""
        self._guard = guard
        self._known: BoundedCache[User, tuple[datetime, frozenset[str] | None]] = BoundedCache(_MAX_CACHED)
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
        if known is not None and is_fresh(known[0], now(), KNOWN_FOR):
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


class BoundedCache(Generic[K, V]):
    """A cache with a maximum number of entries; the oldest are dropped."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
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
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def pop(self, key: K) -> None:
        """Remove a key."""
        self._entries.pop(key, None)


class Rate:
    """Token buckets by key. The least recently used keys are forgotten."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._buckets: OrderedDict[Hashable, tuple[float, datetime]] = OrderedDict()

    def take(self, key: Hashable, time: datetime) -> bool:
        """Take one token of a key; returns False if none is left at that time."""
        left, since = self._buckets.pop(key, (float(self._burst), time))
        left = min(self._burst, left + max(0.0, (time - since).total_seconds()) * self._per_second)
        granted = left >= 1
        self._buckets[key] = (left - granted, time)
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)
        return granted
