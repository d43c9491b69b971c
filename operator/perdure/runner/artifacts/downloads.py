"""Download files over HTTP from untrusted servers."""

import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from typing import Final

from perdure.runner.artifacts.errors import ArtifactError

_SILENCE_SECONDS: Final = 60.0
"""How long a server may be silent."""
_PIECE: Final = 1024 * 1024
"""The size of a piece in memory, in bytes."""


def download(url: str) -> Iterator[bytes]:
    """Read a file in pieces.

    Raises:
        ArtifactError: The server did not send the complete file.
    """
    scheme = urllib.parse.urlsplit(url).scheme
    if scheme not in {"http", "https"}:
        raise ArtifactError(f"the URL must begin with `http://` or `https://`, not `{scheme}:`")
    size = 0
    try:
        with _opener().open(url, timeout=_SILENCE_SECONDS) as response:
            while piece := response.read(_PIECE):
                size += len(piece)
                yield piece
            length = response.headers.get("Content-Length")
    except urllib.error.HTTPError as error:
        raise ArtifactError(f"{error.url} returned HTTP status {error.code}") from error
    except (OSError, HTTPException, ValueError) as error:
        raise ArtifactError(f"{url}: {type(error).__name__}: {error}") from error
    if length is not None and length != str(size):
        raise ArtifactError(f"the download ended after {size} of {length} bytes")


def _opener() -> urllib.request.OpenerDirector:
    """Build an opener that only supports HTTP, even after redirects."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener
