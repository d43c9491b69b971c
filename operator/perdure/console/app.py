"""The console as a web application."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from perdure.client.errors import ClientError
from perdure.console.forms import ActionForms, new_request_id
from perdure.console.pages import Pages
from perdure.console.site import Site, explain
from perdure.console.start import StartForm
from perdure.engine.payloads import readable
from perdure.view import text
from perdure.view.page import UNICODE, elapsed, style_of
from perdure.view.runs.tree import note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from perdure.console.site import ClusterAccess, ConsoleSettings


_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # without it, forms have no `Origin`
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_MAX_VALUE: Final = 200_000
"""Maximum characters of a value on a page."""


def console(access: ClusterAccess, settings: ConsoleSettings, before: Sequence[Middleware] = ()) -> Starlette:
    """Build the application.

    Args:
        access: The access to the API server.
        settings: The settings of the console.
        before: The middleware that handles requests first.
    """
    templates = Environment(
        loader=PackageLoader("perdure.console"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    templates.globals |= {"mark": mark, "note": note, "elapsed": elapsed, "new_request_id": new_request_id}
    templates.filters |= {
        "ago": text.age,
        "duration": text.duration,
        "iso": text.iso,
        "line": text.one_line,
        "part": lambda value: quote(str(value), safe=""),
        "short": lambda value, width: text.shorten(text.one_line(value), width, "…"),
        "value": _value,
    }

    site = Site(access, settings, templates)

    def failed(request: Request, error: Exception) -> Response:
        status, title, message = explain(error, "view" if request.method == "GET" else "perdure-on-call")
        return site.show(request, "error.html", status=status, title=title, message=message)

    return Starlette(
        routes=[
            Mount("/static", StaticFiles(packages=[("perdure.console", "static")]), name="static"),
            *([] if settings.read_only else [*StartForm(site).routes(), *ActionForms(site).routes()]),
            *Pages(site).routes(),
        ],
        middleware=[Middleware(SecurityHeaders), *before],
        exception_handlers={ClientError: failed, HTTPException: failed},
    )


def _value(data: Any) -> str:
    """Format a JSON value for users; a very long value is truncated."""
    written = json.dumps(readable(data), ensure_ascii=False, indent=2)
    return written if len(written) <= _MAX_VALUE else f"{written[:_MAX_VALUE]}\n… ({len(written):,} characters)"


class SecurityHeaders:
    """Adds headers that restrict pages to the features that they need."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add the headers to its response."""

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.lower().encode(), value.encode()) for name, value in _HEADERS.items()]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        await self._app(scope, receive, sent)


# An icon and a tone for each status. The word is always next to them, so colors are not needed.

_TONES: Final = {
    "green": "good",
    "bold red": "bad",
    "magenta": "stopped",
    "cyan": "running",
    "blue": "waiting",
    "yellow": "warning",
}
"""The tones by the style in the terminal."""


_OTHERS: Final = {
    "Ready": ("✓", "good"),
    "Not ready": ("✗", "bad"),
    "Closed": ("✓", "good"),
    "Open": ("✗", "bad"),
    "HalfOpen": ("↻", "warning"),
    "Expired": ("✗", "bad"),
    "Renewed": ("✓", "good"),
    "Full": ("!", "warning"),
    "Free": ("✓", "good"),
    "Not re-driven": ("○", "idle"),
    "Deleted": ("○", "idle"),
    "Accepted": ("✓", "good"),
    "Refused": ("✗", "bad"),
}
"""Words that the terminal does not show with an icon."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The icon and the tone next to a word."""

    icon: str
    tone: str
    """A class of the style sheet."""


def mark(word: str) -> Mark:
    """Return the mark of a status."""
    if word in _OTHERS:
        return Mark(*_OTHERS[word])
    return Mark(UNICODE.icons.get(word, "·"), _TONES.get(style_of(word), "idle"))
