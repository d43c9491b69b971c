"""Callers of the Temporal frontend, and an API server that reviews their tokens."""

import asyncio
import base64
from typing import Any

import orjson

AUDIENCE = "perdure.dev/temporal"


class ApiServer:
    """Answers reviews: the test determines whether tokens are valid and what is allowed."""

    def __init__(self) -> None:
        self.allowed = False
        self.only: frozenset[tuple[str, str]] = frozenset()
        """Verbs and resources that are allowed in any case."""
        self.valid = True
        self.user = "system:serviceaccount:orders:shop"
        """Whom a token identifies when it is reviewed."""
        self.extra: dict[str, list[str]] = {}
        """Other attributes of that user."""
        self.subjects: list[dict[str, Any]] = []
        """The specs of all reviews of access."""
        self.asked: list[dict[str, Any]] = []
        self.audiences = [AUDIENCE]
        self.reviewed: list[str] = []
        self.asked_for: list[list[str] | None] = []
        """The audiences of each review."""

    async def create(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        if url.endswith("tokenreviews"):
            self.reviewed.append(body["spec"]["token"])
            self.asked_for.append(body["spec"].get("audiences"))
            await asyncio.sleep(0)
            user = {"username": self.user, "extra": self.extra}
            valid = {"authenticated": True, "user": user, "audiences": self.audiences}
            return {"status": valid if self.valid else {"error": "unknown"}}
        self.subjects.append(body["spec"])
        self.asked.append(body["spec"]["resourceAttributes"])
        asked = self.asked[-1]
        resource = f"{asked['resource']}/{asked['subresource']}".removesuffix("/")
        return {"status": {"allowed": self.allowed or (asked["verb"], resource) in self.only}}


def token(number: int = 0, **claims: Any) -> str:
    """A token of the right shape; the API server decides whether it is valid."""
    said = {
        "iss": "https://kubernetes.default.svc",
        "aud": [AUDIENCE],
        "sub": "system:serviceaccount:orders:shop",
        **claims,
    }
    parts = (orjson.dumps(part) for part in ({"alg": "RS256"}, said))
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (*parts, b"%d" % number))


def bearer(text: str) -> tuple[tuple[str, str], ...]:
    """The metadata of a call that shows a token."""
    return (("authorization", f"Bearer {text}"),)
