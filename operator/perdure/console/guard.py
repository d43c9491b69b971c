"""Restricts access to a server on the loopback interface that acts with the user's permissions.

Only a browser that has opened the printed address is served, and no page of another origin: other users of the machine do not
have the key in that address, and requests from other web pages in the browser are rejected.
"""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

HOST: Final = "127.0.0.1"
KEY: Final = "key"
"""The query parameter with the key."""


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """The request is rejected; the text has the reason."""

    text: str


@dataclass(frozen=True, slots=True)
class Admission:
    """The browser has sent the key: it gets the cookie, and loads the address again without the key."""

    cookie: str
    value: str


class RequestGuard:
    """Checks requests with the key."""

    def __init__(self, command: str) -> None:
        """`command`: the command that prints the address, for messages."""
        self._command = command
        self._key = secrets.token_urlsafe(32)
        self.port = 0
        """The address of the server, once it listens."""

    def url(self, path: str = "/") -> str:
        """The address to open first, with the key. The browser then stores the key in a cookie."""
        return f"http://{HOST}:{self.port}{path}?{urlencode({KEY: self._key})}"

    def check(
        self, headers: Mapping[str, str], query: Mapping[str, str], cookies: Mapping[str, str]
    ) -> RefusedRequest | Admission | None:
        """Check a request.

        Args:
            headers: Its headers; names are case-insensitive.
            query: Its query parameters.
            cookies: Its cookies.

        Returns:
            The reason of a rejection, or the response that admits the browser; None to serve the request.
        """
        origins = {f"http://{host}:{self.port}" for host in (HOST, "localhost")}
        foreign = "Origin" in headers and headers["Origin"] not in origins
        if foreign or f"http://{headers.get('Host', '')}" not in origins:
            return RefusedRequest("This address does not serve other pages.\n")
        cookie = f"perdure-ui-{self.port}"
        if self._is_key(query.get(KEY, "")):
            return Admission(cookie, self._key)
        if not self._is_key(cookies.get(cookie, "")):
            return RefusedRequest(f"Open the address that `{self._command}` printed.\n")
        return None

    def _is_key(self, key: str) -> bool:
        return hmac.compare_digest(key.encode(), self._key.encode())
