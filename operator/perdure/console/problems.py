"""Explains errors to users."""

from __future__ import annotations

from starlette.exceptions import HTTPException

from perdure.client.errors import ForbiddenError, GoneError, NoNamespaceError, UnreachableError
from perdure.kube.errors import ApiError

_TITLES = {401: "Not logged in", 403: "No permission", 404: "Not found"}


def explain(error: Exception, role: str = "view") -> tuple[int, str, str]:
    """Return the HTTP status of an error, a title, and a message for the user.

    Args:
        error: The error.
        role: The ClusterRole that permits the request.
    """
    if isinstance(error, HTTPException):
        return error.status_code, _TITLES.get(error.status_code, "Invalid request"), error.detail
    cause = error.__cause__
    message = cause.message if isinstance(cause, ApiError) else str(error)
    match error:
        case ForbiddenError():
            return 403, "No permission", f"{message}. Ask your administrator for the role `{role}` in this namespace."
        case GoneError() | NoNamespaceError():
            return 404, "Not found", str(error)
        case UnreachableError():
            return 503, "The API server does not respond", str(error)
    if isinstance(cause, ApiError) and cause.status == 401:  # noqa: PLR2004
        return 401, "Not logged in", str(error)
    return 502, "The request failed", str(error)
