"""Prepares the input artifacts of an activity: downloads, checks and unpacks them. It runs before the activity's container.

$PERDURE_ARTIFACTS          what to prepare: a JSON list
$PERDURE_ARTIFACTS_FOLDER   where: one file or folder for each, with the name of the artifact

Servers and archives are not trusted: only HTTP is spoken, an incomplete file or one with another hash is refused, and an archive
writes only regular files, folders, and links within its own folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_TIMEOUT_SECONDS = 60.0
"""For so long a server may be silent."""
_PIECE = 1024 * 1024
"""Bytes that are held at a time."""
_MODE = 0o644


class ArtifactError(Exception):
    """An artifact cannot be prepared; the message says which one and why."""


def prepare(artifact: Mapping[str, Any], folder: Path) -> None:
    """Prepare one artifact.

    Args:
        artifact: `name` and `data`, or `name`, `url`, and if given `sha256` and `archive`.
        folder: Where.

    Raises:
        ArtifactError: It cannot be prepared.
    """
    target = folder / artifact["name"]
    try:
        if "url" not in artifact:
            target.write_text(artifact["data"], encoding="utf-8")
            target.chmod(_MODE)
            return
        part = folder / f".{artifact['name']}"
        _download(artifact["url"], part, artifact.get("sha256"))
        if artifact.get("archive") == "Tar":
            target.mkdir()
            _unpack(part, target)
            part.unlink()
        else:
            part.chmod(_MODE)
            part.rename(target)
    except (OSError, HTTPException, tarfile.TarError, EOFError, ValueError) as error:
        raise ArtifactError(f"artifact `{artifact['name']}`: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.url} answers with HTTP status {error.code}"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _download(url: str, target: Path, sha256: str | None) -> None:
    scheme = urllib.parse.urlsplit(url).scheme
    if scheme not in {"http", "https"}:
        raise ValueError(f"the URL must begin with `http://` or `https://`, not `{scheme}:`")
    digest, size = hashlib.sha256(), 0
    with _opener().open(url, timeout=_TIMEOUT_SECONDS) as response, target.open("xb") as file:
        while piece := response.read(_PIECE):
            digest.update(piece)
            size += len(piece)
            file.write(piece)
        length = response.headers.get("Content-Length")
    if length is not None and length != str(size):
        raise ValueError(f"the download ended after {size} of {length} bytes")
    if sha256 is not None and digest.hexdigest() != sha256.lower():
        raise ValueError(f"the SHA-256 of the file is {digest.hexdigest()}, and should be {sha256}")


def _opener() -> urllib.request.OpenerDirector:
    """Speaks HTTP and nothing else, wherever a server redirects to."""
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


def _unpack(archive: Path, folder: Path) -> None:
    with tarfile.open(archive, "r:*") as tar:
        tar.extractall(folder, filter="data")


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Prepare all artifacts; returns the exit code."""
    folder = Path(environ.get("PERDURE_ARTIFACTS_FOLDER") or "/perdure-artifacts")
    try:
        for artifact in json.loads(environ["PERDURE_ARTIFACTS"]):
            prepare(artifact, folder)
    except ArtifactError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
