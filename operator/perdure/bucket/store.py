"""An S3-compatible bucket, configured by variables that Kubernetes sets from a Secret.

$PERDURE_STORE_BUCKET              required
$PERDURE_STORE_ENDPOINT            URL of the server; default: AWS in the region
$PERDURE_STORE_REGION, _PREFIX, _ACCESS_KEY_ID, _SECRET_ACCESS_KEY, _SESSION_TOKEN, _CA
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from obstore.store import S3Store

if TYPE_CHECKING:
    from obstore.store import ClientConfig, S3Config

_RETRIES: Final = 100
_SILENCE: Final = timedelta(seconds=60)
"""How long the store may be silent."""
_REQUEST_TIMEOUT: Final = timedelta(days=1)
_ANSWER: Final = re.compile(
    r"(?:<\?xml[^>]*>\s*)?<Error>.*?<Code>([^<]*)</Code>(?:.*?<Message>([^<]*)</Message>)?.*", re.DOTALL
)
"""A whole error response. Only its code and message are shown: other elements repeat the signature of the request."""
_SETTINGS: Final = {
    "endpoint": "ENDPOINT",
    "region": "REGION",
    "access_key_id": "ACCESS_KEY_ID",
    "secret_access_key": "SECRET_ACCESS_KEY",
    "session_token": "SESSION_TOKEN",
}


def open_bucket(environ: Mapping[str, str], *, patience: timedelta) -> S3Store:
    """Configure the bucket, without a request.

    Args:
        environ: The variables.
        patience: How long a request is retried if the store does not respond, or responds with a server error.

    Raises:
        ValueError, obstore.exceptions.BaseError: The settings are not valid.
    """
    found = {name: environ.get(f"PERDURE_STORE_{key}", "").strip() for name, key in _SETTINGS.items()}
    if found["endpoint"] and not found["endpoint"].startswith(("http://", "https://")):
        raise ValueError("the endpoint must begin with `https://` or `http://`")
    config: S3Config = {}
    config.update({name: value for name, value in found.items() if value})  # type: ignore[typeddict-item]
    client: ClientConfig = {
        "allow_http": found["endpoint"].startswith("http://"),
        "connect_timeout": timedelta(seconds=10),
        "read_timeout": _SILENCE,
        "timeout": _REQUEST_TIMEOUT,
    }
    if environ.get("PERDURE_STORE_CA"):
        client["root_certificate"] = environ["PERDURE_STORE_CA"]
    return S3Store(
        environ["PERDURE_STORE_BUCKET"].strip(),
        prefix=environ.get("PERDURE_STORE_PREFIX", "").strip("/ ") or None,
        config=config,
        client_options=client,
        retry_config={"max_retries": _RETRIES, "retry_timeout": patience},
    )


def reason_of(error: Exception) -> str:
    """The reason of an error of the store, on one line, without the signature of the request."""
    return " ".join(_ANSWER.sub(r"\1: \2", str(error).split("\n\nDebug source:")[0]).split())
