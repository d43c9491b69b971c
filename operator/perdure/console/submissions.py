"""Reads forms that a browser sends. Only forms of the console's own pages are accepted."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request

MAX_FORM: Final = 4 * 1024 * 1024
"""Maximum bytes of a form. An object in the cluster has at most 1.5 MiB, but encoding can triple the size."""
_MAX_FIELDS: Final = 1_000
_REQUEST_ID: Final = re.compile("[0-9a-f]{10}")


def new_request_id() -> str:
    """Return an ID for a form. Objects that the form creates are named after it, so that sending it twice creates them once."""
    return secrets.token_hex(5)


class Submission:
    """The fields of a form that a page of the console has sent."""

    def __init__(self, fields: Mapping[str, list[str]]) -> None:
        self._fields = fields

    def text(self, name: str) -> str:
        """Return a field; empty if it is missing. Browsers send line breaks as CR LF."""
        return self._fields.get(name, [""])[-1].replace("\r\n", "\n")

    def all(self, name: str) -> list[str]:
        """Return the different values of a field that occurs several times."""
        return list(dict.fromkeys(self._fields.get(name, ())))

    @property
    def request_id(self) -> str:
        """The ID of the form.

        Raises:
            HTTPException: The form has no valid ID.
        """
        found = self.text("request")
        if not _REQUEST_ID.fullmatch(found):
            raise HTTPException(400, "The form is not complete. Open it again.")
        return found


async def submitted(request: Request) -> Submission:
    """Read a form.

    Raises:
        HTTPException: Another site has sent the form, or it is too large or not a form.
    """
    if not _from_here(request):
        raise HTTPException(403, "Only pages of the console can send this. Open the console, and try again.")
    if request.headers.get("Content-Type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise HTTPException(415, "This must be a form.")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM:
            raise HTTPException(413, "The form is too large.")
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError as error:
        raise HTTPException(400, f"The form cannot be read: {error}.") from error
    return Submission(fields)


def _from_here(request: Request) -> bool:
    """Whether a page of the same origin sends the request.

    A proxy that logs users in recognizes them by a cookie, so another site could have their browsers send requests. Browsers
    report the sender in `Sec-Fetch-Site`, which pages cannot change; over plain HTTP, they report it only in `Origin`.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == "same-origin"
    return urlsplit(request.headers.get("Origin", "")).netloc == request.headers.get("Host", "-")
