"""Send an HTTP request, and decide from the response whether the activity succeeded and whether to retry it."""

import ssl
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

import aiohttp
import orjson
from yarl import URL

from perdure import activity
from perdure.activity import ApplicationError
from perdure.api.times import parse_duration
from perdure.kube.clock import now
from perdure.runner.expressions import DeferredExpressions

MAX_BODY: Final = 1 << 20
"""The most bytes of a response that are read."""
_SHOWN: Final = 500
"""The most characters of a response in a failure."""
_REDIRECTS: Final = 5
_LONGEST_DELAY: Final = 24 * 3600.0
"""The longest `Retry-After` in seconds; longer ones are reduced to it."""
_NOT_REPEATABLE: Final = {"POST", "PATCH"}


async def send(http: Mapping[str, Any], expressions: DeferredExpressions, environ: Mapping[str, str]) -> Any:
    """Send the request, and return the result of the activity.

    Args:
        http: The field `http` of the activity, with its expressions evaluated.
        expressions: Evaluates its conditions and its output.
        environ: The values from Secrets and ConfigMaps.

    Raises:
        ApplicationError: The request failed.
    """
    headers, secret = _headers(http, environ)
    data = _body(http.get("body"))
    if isinstance(http.get("body"), dict | list | int | float | bool):
        headers.setdefault("Content-Type", "application/json")
    if http["method"] in _NOT_REPEATABLE:
        headers.setdefault("Idempotency-Key", f"{activity.info().run_id}/{activity.info().activity_id}")
    url = _url(http)
    timeout = aiohttp.ClientTimeout(total=parse_duration(http["timeout"]).total_seconds())
    where = f"{http['method']} {url.with_query(None).with_user(None)}"
    try:
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=_tls(environ)), timeout=timeout, headers={"User-Agent": "perdure"}
            ) as session,
            session.request(
                http["method"],
                url,
                headers=headers,
                data=data,
                max_redirects=_REDIRECTS + 1,  # the number of the redirect that fails
                middlewares=(_OriginGuard(url, secret),),
            ) as response,
        ):
            body = await _read(response, where)
            result = {
                "status": response.status,
                "headers": {name.lower(): value for name, value in response.headers.items()},
                "body": body,
            }
    except TimeoutError as error:
        raise ApplicationError(f"{where}: no response within {http['timeout']}", type="RequestTimeout") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:  # ValueError: a redirect adds a second Authorization
        raise ApplicationError(f"{where}: {error}", type="RequestFailed") from error
    _check(http, expressions, result, where)
    if http.get("output") is None:
        return {"status": result["status"], "body": body}
    return expressions.output(http["output"], response=result)


class _OriginGuard:
    """Removes headers from Secrets once a redirect has left the origin of the request: its scheme, host, and port.

    They stay removed if a later redirect returns: the other server has chosen the path and the query of that request. aiohttp
    itself removes Authorization, Cookie, and Proxy-Authorization in the same way, whether they are from Secrets or not.
    """

    def __init__(self, url: URL, secret: frozenset[str]) -> None:
        """Guard a request to `url` with the names of `secret` headers."""
        self._origin = _origin(url)
        self._secret = secret
        self._left = False

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send a request, or the next one after a redirect."""
        self._left = self._left or _origin(request.url) != self._origin
        if self._left:
            for name in self._secret:
                request.headers.popall(name, None)
            request.headers.setdefault("Host", request.url.host_port_subcomponent or "")
        return await handler(request)


def _origin(url: URL) -> tuple[str, str | None, int | None]:
    return url.scheme, url.host, url.port


def _check(http: Mapping[str, Any], expressions: DeferredExpressions, found: Mapping[str, Any], where: str) -> None:
    """Raise an ApplicationError unless the request succeeded."""
    status: int = found["status"]
    condition = http.get("successCondition")
    succeeded = status < HTTPStatus.MULTIPLE_CHOICES
    if expressions.is_true(condition, "successCondition", response=found) if condition else succeeded:
        return
    text = found["body"] if isinstance(found["body"], str) else orjson.dumps(found["body"]).decode()
    phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else ""
    message = f"{where}: {status} {phrase}".rstrip()
    message += ", and `successCondition` is false" if succeeded else ""
    raise ApplicationError(
        f"{message}: {text[:_SHOWN]}" if text.strip() else message,
        type="ConditionFailed" if succeeded else f"Http{status}",
        details={"status": status},
        non_retryable=not succeeded and status not in http["retryStatuses"],
        next_retry_delay=retry_after(found["headers"].get("retry-after", ""), now()),
    )


def retry_after(text: str, time: datetime) -> float | None:
    """Convert a `Retry-After`, a number or a date, to seconds; None if it is empty or invalid."""
    try:
        seconds = float(text) if text.strip().isdecimal() else (parsedate_to_datetime(text) - time).total_seconds()
    except (TypeError, ValueError):
        return None
    return min(max(seconds, 0.0), _LONGEST_DELAY)


async def _read(response: aiohttp.ClientResponse, where: str) -> Any:
    """Read the body, as JSON if possible, otherwise as text."""
    raw = bytearray()
    async for part in response.content.iter_any():
        raw += part
        if len(raw) > MAX_BODY:
            message = f"{where}: the response has more than {MAX_BODY:,} bytes; request less, or use a script"
            raise ApplicationError(message, type="ResponseTooLarge", non_retryable=True)
    try:
        return orjson.loads(bytes(raw)) if raw else None
    except orjson.JSONDecodeError:
        return bytes(raw).decode("utf-8", "replace")


def _url(http: Mapping[str, Any]) -> URL:
    try:
        url = URL(http["url"])
        if url.scheme in {"http", "https"} and url.host:
            return url.update_query({name: _text(value) for name, value in http.get("query", {}).items()})
    except ValueError:
        pass
    message = "the value of `url` is not a URL that starts with `https://` or `http://` and has a host"
    raise ApplicationError(message, type="InvalidUrl", non_retryable=True)


def _headers(http: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[dict[str, str], frozenset[str]]:
    """The headers, and the names of those with a value from a Secret."""
    declared = http.get("headers", ())
    headers = {
        header["name"]: header.get("value", "") + environ.get(f"PERDURE_HEADER_{i}", "").strip()
        for i, header in enumerate(declared)
    }
    return headers, frozenset(header["name"] for i, header in enumerate(declared) if f"PERDURE_HEADER_{i}" in environ)


def _body(body: Any) -> bytes | None:
    if body is None:
        return None
    return body.encode() if isinstance(body, str) else orjson.dumps(body)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _tls(environ: Mapping[str, str]) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=environ.get("PERDURE_CA") or None)
