"""Who calls, and may they? ServiceAccount tokens, checked by the API server, and remembered for a short while."""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from perdure.frontend.errors import denied, unauthenticated, unavailable
from perdure.frontend.rights import FREE, Right, needed, remedy
from perdure.frontend.service.call import Call
from perdure.kube import client as api
from perdure.kube.clock import now

_AUTHENTICATION = "/apis/authentication.k8s.io/v1"
_AUTHORIZATION = "/apis/authorization.k8s.io/v1"
_KNOWN_FOR = timedelta(seconds=30)
"""A token, or a right, that was taken away is good for this long."""
_REFUSED_FOR = timedelta(seconds=2)
"""Who is given one now has it after so long."""
_MAX_KNOWN = 10_000


@dataclass(frozen=True, slots=True)
class User:
    """Who a token belongs to, as the API server says."""

    name: str
    uid: str
    groups: tuple[str, ...]


class Guard:
    """Lets RPCs pass, or not."""

    def __init__(self, client: api.Client) -> None:
        self._client = client
        self._users: dict[bytes, tuple[datetime, User | None]] = {}
        self._rights: dict[tuple[User, str, Right], tuple[datetime, bool]] = {}

    async def admit(self, rpc: str, namespace: str | None, call: Call) -> None:
        """Let an RPC pass.

        Args:
            rpc: Its name.
            namespace: The one that it is about; None: about none.
            call: Who calls.

        Raises:
            RpcError: the caller is not known, or may not do that.
        """
        user = await self._user(call)
        if rpc in FREE:
            return
        for right in needed(rpc):
            if not await self._may(user, namespace or "", right):
                raise denied(_refusal(user, rpc, namespace, right))

    async def _user(self, call: Call) -> User:
        given = next((value for key, value in call.metadata if key == "authorization"), "")
        text = given.decode(errors="replace") if isinstance(given, bytes) else given
        scheme, _, token = text.partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise unauthenticated("a ServiceAccount token is needed: `authorization: Bearer <token>`")
        key = hashlib.sha256(token.encode()).digest()
        known = self._users.get(key)
        if known is None or known[0] < now():
            found = await self._review(token)
            known = now() + (_REFUSED_FOR if found is None else _KNOWN_FOR), found
            _remember(self._users, key, known)
        user = known[1]
        if user is None:
            raise unauthenticated("the token is not, or no longer, that of a ServiceAccount of this cluster")
        return user

    async def _review(self, token: str) -> User | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self._ask(f"{_AUTHENTICATION}/tokenreviews", body)).get("status") or {}
        if not status.get("authenticated"):
            return None
        said = status.get("user") or {}
        return User(said.get("username", ""), said.get("uid", ""), tuple(said.get("groups") or ()))

    async def _may(self, user: User, namespace: str, right: Right) -> bool:
        key = user, namespace, right
        known = self._rights.get(key)
        if known is None or known[0] < now():
            allowed = await self._review_access(user, namespace, right)
            known = now() + (_KNOWN_FOR if allowed else _REFUSED_FOR), allowed
            _remember(self._rights, key, known)
        return known[1]

    async def _review_access(self, user: User, namespace: str, right: Right) -> bool:
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

    async def _ask(self, url: str, body: api.Object) -> api.Object:
        try:
            return await self._client.create(url, body)
        except (api.ApiError, *api.TRANSIENT) as error:
            raise unavailable(f"the API server could not be asked who that is: {error}") from error


def _refusal(user: User, rpc: str, namespace: str | None, right: Right) -> str:
    """What somebody may not do, and what would let them."""
    what = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
    where = f" in namespace {namespace!r}" if namespace else ""
    other = "; or there is no such namespace" if namespace else ""
    return f"{user.name} may not {right.verb} {what}{where}, which {rpc} needs: {remedy(user.name, namespace, right)}{other}"


def _remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    if len(known) >= _MAX_KNOWN:
        known.clear()
    known[key] = value
