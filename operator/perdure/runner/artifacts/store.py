"""The artifact store: a bucket that speaks S3, as the variables say that Kubernetes has filled from a Secret.

$PERDURE_STORE_BUCKET              required
$PERDURE_STORE_ENDPOINT            URL of the server; without one, that of AWS in the region
$PERDURE_STORE_REGION, _PREFIX, _ACCESS_KEY_ID, _SECRET_ACCESS_KEY, _SESSION_TOKEN, _CA
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from perdure.runner.artifacts.errors import ArtifactError
from perdure.runner.artifacts.packing import PIECE

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config

_PARALLEL: Final = 3
"""How many parts are on their way at the same time."""
_PATIENCE: Final = timedelta(minutes=3)
"""For so long a request is repeated if the store does not answer, or answers with an error of its own."""
_RETRIES: Final = 100
_SILENCE: Final = timedelta(seconds=60)
"""For so long the store may send nothing."""
_WHOLE_REQUEST: Final = timedelta(days=1)
_SETTINGS: Final = {
    "endpoint": "ENDPOINT",
    "region": "REGION",
    "access_key_id": "ACCESS_KEY_ID",
    "secret_access_key": "SECRET_ACCESS_KEY",
    "session_token": "SESSION_TOKEN",
}


class ArtifactStore:
    """Uploads and downloads objects; neither ever holds more than a few pieces in memory."""

    def __init__(self, environ: Mapping[str, str], *, patience: timedelta = _PATIENCE) -> None:
        found = {name: environ.get(f"PERDURE_STORE_{key}", "").strip() for name, key in _SETTINGS.items()}
        if found["endpoint"] and not found["endpoint"].startswith(("http://", "https://")):
            message = "the endpoint of the artifact store must begin with `https://` or `http://`"
            raise ArtifactError(message, "ArtifactStoreFailed")
        config: S3Config = {}
        config.update({name: value for name, value in found.items() if value})  # type: ignore[typeddict-item]
        client: ClientConfig = {
            "allow_http": found["endpoint"].startswith("http://"),
            "connect_timeout": timedelta(seconds=10),
            "read_timeout": _SILENCE,
            "timeout": _WHOLE_REQUEST,
        }
        if environ.get("PERDURE_STORE_CA"):
            client["root_certificate"] = environ["PERDURE_STORE_CA"]
        with _explained("the settings of the artifact store are not valid"):
            self._store = S3Store(
                environ["PERDURE_STORE_BUCKET"].strip(),
                prefix=environ.get("PERDURE_STORE_PREFIX", "").strip("/ ") or None,
                config=config,
                client_options=client,
                retry_config={"max_retries": _RETRIES, "retry_timeout": patience},
            )

    def upload(self, key: str, pieces: Iterator[bytes]) -> None:
        """Store an object; it exists as a whole, or not at all.

        Args:
            key: Its key.
            pieces: The content: pieces of `PIECE` bytes, and a shorter one, or none, at the end.

        Raises:
            ArtifactError: The store has not taken it.
        """
        with _explained(f"the artifact store does not take `{key}`"):
            first = next(pieces, b"")
            if len(first) < PIECE:
                next(pieces, None)  # the end of a folder that cannot be packed is a failure
                obstore.put(self._store, key, first)
            else:
                obstore.put(self._store, key, chain([first], pieces), chunk_size=PIECE, max_concurrency=_PARALLEL)

    def download(self, key: str) -> Iterator[bytes]:
        """Read an object in pieces.

        Raises:
            ArtifactError: The store does not give it.
        """
        with _explained(f"the artifact store does not give `{key}`"):
            for piece in obstore.get(self._store, key).stream(min_chunk_size=1024 * 1024):
                yield bytes(piece)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise ArtifactError(f"{what}: it does not exist", "ArtifactMissing") from error
    except (BaseError, ValueError) as error:
        reason = " ".join(str(error).split("\n\nDebug source:")[0].split())
        raise ArtifactError(f"{what}: {reason}", "ArtifactStoreFailed") from error
