"""Who may use a server on the loopback interface that acts with the user's permissions.

It serves only a browser that has opened the address that the command printed, and no page of another origin: other users of the
machine do not know the key in that address, and a web page that makes the browser send requests here is refused.
"""

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

HOST: Final = "127.0.0.1"
KEY: Final = "key"
"""The query parameter that has the key."""


@dataclass(frozen=True, slots=True)
class RefusedRequest:
    """The request is not served; the text says why."""

    text: str


@dataclass(frozen=True, slots=True)
class Admission:
    """The browser has shown the key: it gets the cookie, and loads the address again without the key."""

    cookie: str
    value: str


class RequestGuard:
    """Knows the key, and checks requests."""

    def __init__(self, command: str) -> None:
        """`command`: the command that prints the address."""
        self._command = command
        self._key = secrets.token_urlsafe(32)
        self.port = 0
        """The address of the server, once it listens."""

    def url(self, path: str = "/") -> str:
        """The address to open first: with the key, which the browser then keeps."""
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
            Why it is rejected, or the response that admits the browser; None to serve it.
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

    def _is_key(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._key.encode())
