"""Prepare the input artifacts of an activity: download, check, and unpack them. This runs before the activity's container.

$PERDURE_ARTIFACTS          the artifacts to prepare: a JSON list
$PERDURE_ARTIFACTS_FOLDER   the target folder: one file or folder for each artifact, with its name
$PERDURE_STORE_…            the artifact store, if one of them comes from it

Files also come over HTTP, from servers that are not trusted.
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
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perdure.lazy import lazily
from perdure.runner.artifacts.archives import unpack
from perdure.runner.artifacts.programs import ArtifactError, write_lines

with lazily():  # artifacts from elsewhere do without the store's library
    from perdure.runner.artifacts import store

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perdure.runner.artifacts.store import ArtifactStore


_SILENCE_SECONDS: Final = 60.0
"""How long a server may be silent."""
_DOWNLOAD_PIECE: Final = 1024 * 1024
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
            while piece := response.read(_DOWNLOAD_PIECE):
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


_MODE: Final = 0o644


class Inputs:
    """Prepares artifacts in a folder."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        """`environ`: the environment with the settings of the artifact store."""
        self._folder = folder
        self._environ = environ
        self._store: ArtifactStore | None = None

    def prepare(self, artifact: Mapping[str, Any]) -> None:
        """Prepare one artifact.

        Args:
            artifact: `name`, and one of `data`, `url`, `key`, or `items`: a list of objects like this one, without names. For
                `url` and `key`, also `sha256` and `archive`, if they are given.

        Raises:
            ArtifactError: The artifact cannot be prepared.
        """
        name = artifact["name"]
        try:
            target = self._folder / name
            if "items" in artifact:
                target.mkdir()
                for i, item in enumerate(artifact["items"]):
                    self._place(item, target / str(i))
            else:
                self._place(artifact, target)
        except (ArtifactError, OSError, tarfile.TarError, EOFError) as error:
            reason = str(error) if isinstance(error, ArtifactError) else f"{type(error).__name__}: {error}"
            raise ArtifactError(f"artifact `{name}`: {reason}") from error

    def _place(self, source: Mapping[str, Any], target: Path) -> None:
        if "data" in source:
            target.write_text(source["data"], encoding="utf-8")
            target.chmod(_MODE)
            return
        part = target.with_name(f".{target.name}")
        self._save(self._pieces(source), part, source.get("sha256"))
        if source.get("archive") == "Tar":
            target.mkdir()
            unpack(part, target)
            part.unlink()
        else:
            part.chmod(_MODE)
            part.rename(target)

    def _pieces(self, source: Mapping[str, Any]) -> Iterator[bytes]:
        if "url" in source:
            return download(source["url"])
        self._store = self._store or store.ArtifactStore(self._environ)
        return self._store.download(source["key"])

    def _save(self, pieces: Iterator[bytes], target: Path, sha256: str | None) -> None:
        digest = hashlib.sha256()
        with target.open("xb") as file:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
        if sha256 is not None and digest.hexdigest() != sha256.lower():
            raise ArtifactError(f"the SHA-256 of the file is {digest.hexdigest()}, but must be {sha256}")


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Prepare all artifacts, and return the exit code."""
    return write_lines(_prepare_all(environ))


def _prepare_all(environ: Mapping[str, str]) -> Iterator[str]:
    """Prepare the artifacts one after the other, and yield a line for each one that is ready."""
    inputs = Inputs(Path(environ.get("PERDURE_ARTIFACTS_FOLDER") or "/perdure-artifacts"), environ)
    for artifact in json.loads(environ["PERDURE_ARTIFACTS"]):
        inputs.prepare(artifact)
        yield f"artifact `{artifact['name']}` is ready"


if __name__ == "__main__":
    sys.exit(main())
