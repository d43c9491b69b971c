"""Headers of Nexus operations. Pure."""

from collections.abc import Mapping

from perdure.frontend.given import UnfitError

_MAX_HEADER = 8_192
SERVERS_HEADERS = frozenset(
    {
        "request-timeout",
        "xdc-redirection",
        "xdc-redirection-api",
        "xdc-redirection-source-cell",
        "caller-name",
        "caller-type",
        "call-initiation",
        "temporal-principal-type",
        "temporal-principal-name",
    }
)
"""Headers of a Nexus operation that only the server sets (nexusoperations/config.go)."""


def lowered(headers: Mapping[str, str], field: str) -> dict[str, str]:
    """Return a caller's headers with names in lower case.

    Args:
        headers: The headers by name.
        field: The name of the field in messages.

    Raises:
        UnfitError: The headers are too large, or only the server may set one of them.
    """
    header = {key.lower(): value for key, value in headers.items()}
    for key in headers:
        if key.lower() in SERVERS_HEADERS:
            raise UnfitError(f'{field} contains a disallowed header key: "{key}"')
    if sum(len(key) + len(value) for key, value in header.items()) > _MAX_HEADER:
        raise UnfitError(f"{field} exceeds size limit")
    return header
