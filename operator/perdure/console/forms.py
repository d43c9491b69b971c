"""The forms of the console: how they are read, and those that request something of runs, Schedules, and dead letters.

Only forms of the console's own pages are accepted. For a request, the console creates an Operation as the user, and shows its
result. The form that starts a run is in `start`.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.routing import Route

from perdure.api.json_values import mapping, mappings, text
from perdure.client.errors import AlreadyExistsError
from perdure.client.operations import manifest, wait_for_results
from perdure.client.runs import copy_of
from perdure.console import rows
from perdure.console.site import NAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from perdure.api.json_values import Json
    from perdure.client.cluster import Cluster
    from perdure.console.site import Site


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


# Requests

SCHEDULE_VERBS: Final = ("trigger", "pause", "unpause")
"""What can be requested of a Schedule."""

_MAX_PREFIX: Final = 180
"""Maximum characters of the name of a run in that of its rerun."""

MAX_TARGETS: Final = 50
"""Maximum number of objects that one form can request something of."""


class ActionForms:
    """Serves the forms that request something."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """The destinations of the forms."""
        space = "/namespaces/{namespace}"
        return [
            Route(f"{space}/deadletters/redrive", self.redrive, methods=["POST"]),
            Route(f"{space}/runs/{{name}}/signal", self.signal, methods=["POST"]),
            Route(f"{space}/runs/{{name}}/cancel", self.cancel, methods=["POST"]),
            Route(f"{space}/runs/{{name}}/retry", self.retry, methods=["POST"]),
            Route(f"{space}/runs/{{name}}/rerun", self.rerun, methods=["POST"]),
            Route(f"{space}/schedules/{{name}}/{{verb}}", self.schedule, methods=["POST"]),
        ]

    async def redrive(self, request: Request) -> Response:
        """Run activities again: that of the pressed button, or the selected ones."""
        form = await submitted(request)
        names = form.all("only") or form.all("name")
        if not 0 < len(names) <= MAX_TARGETS or not all(map(NAME.fullmatch, names)):
            raise HTTPException(422, f"Select 1 to {MAX_TARGETS} dead letters.")
        targets = [{"kind": "DeadLetter", "name": name} for name in names]
        return await self._request(request, form.request_id, "redrive", {}, targets)

    async def signal(self, request: Request) -> Response:
        """Send a signal to a run, or show the form with what is wrong."""
        form = await submitted(request)
        request_id = form.request_id
        action, problems = read_signal(form)
        if not problems:
            return await self._request(request, request_id, "signal", action, _run(request))
        name = request.path_params["name"]
        async with self._site.open(request) as cluster:
            awaited = awaited_signals(await cluster.runs.get(name))
        entered = {each: form.text(each) for each in SIGNAL_FIELDS}
        shown = {"name": name, "awaited": awaited, "entered": entered, "problems": problems}
        return self._site.show(request, "signal.html", status=422, **shown)

    async def cancel(self, request: Request) -> Response:
        """Request the cancellation of a run."""
        form = await submitted(request)
        action = {"reason": form.text("reason").strip() or None}
        return await self._request(request, form.request_id, "cancel", action, _run(request))

    async def retry(self, request: Request) -> Response:
        """Run the failed steps of a closed run again."""
        form = await submitted(request)
        action = {"reason": form.text("reason").strip() or None}
        return await self._request(request, form.request_id, "retry", action, _run(request))

    async def rerun(self, request: Request) -> Response:
        """Start a run with the spec of another one, once for each form, and show it."""
        form = await submitted(request)
        async with self._site.open(request) as cluster:
            run = dict((await self._site.read_run(request, cluster))[0])
            name = f"{run['metadata']['name'][:_MAX_PREFIX]}-{form.request_id}"
            spec = {key: each for key, each in run["spec"].items() if key != "startPaused"}
            with suppress(AlreadyExistsError):  # the same form has created it before
                await cluster.create("workflowruns", copy_of(run, spec, name))
        namespace = request.path_params["namespace"]
        return RedirectResponse(str(request.url_for("run", namespace=namespace, name=name).path), status_code=303)

    async def schedule(self, request: Request) -> Response:
        """Pause, unpause, or trigger a Schedule."""
        verb = request.path_params["verb"]
        if verb not in SCHEDULE_VERBS:
            raise HTTPException(404, "There is no such action.")
        form = await submitted(request)
        target = {"kind": "Schedule", "name": request.path_params["name"]}
        return await self._request(request, form.request_id, verb, {}, [target])

    async def _request(
        self, request: Request, request_id: str, verb: str, action: Mapping[str, Any], targets: Sequence[Json]
    ) -> Response:
        """Create the Operations of a form, once, and show their results."""
        async with self._site.open(request) as cluster:
            operations = []
            for target in targets:
                # The name identifies the form and the target, so a form that is sent twice creates nothing twice.
                part = hashlib.sha256(target["name"].encode()).hexdigest()[:10]
                body = manifest(verb, action, target, f"{verb}-{request_id}-{part}")
                operations.append(await _create(cluster, body))
            await wait_for_results(cluster, operations, self._site.settings.answer_seconds)
        return self._site.show(request, "answers.html", verb=verb, rows=list(map(rows.operation, operations)))


def _run(request: Request) -> Sequence[Json]:
    return [{"kind": "WorkflowRun", "name": request.path_params["name"]}]


async def _create(cluster: Cluster, body: Json) -> Json:
    """Create an Operation, or return it if the same form has created it before.

    Raises:
        HTTPException: The form has created another one.
    """
    try:
        return await cluster.create("operations", body)
    except AlreadyExistsError:
        found = await cluster.read("Operation", "operations", body["metadata"]["name"])
        if any(found["spec"].get(key) != each for key, each in body["spec"].items()):
            raise HTTPException(409, "This form was sent before, with other values. Open it again.") from None
        return found


# The form that sends a signal to a run

SIGNAL_FIELDS: Final = ("signal", "input")
"""The names of the fields."""


def awaited_signals(run: Json) -> list[str]:
    """Return the names of the signals that a run waits for."""
    awaited = mappings(mapping(run.get("status")).get("awaitedSignals"))
    return list(dict.fromkeys(text(each.get("name")) for each in awaited))


def read_signal(form: Submission) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the form.

    Returns:
        The request of the Operation, and what is wrong by the names of the fields; empty if the request is valid.
    """
    name, value, problems = form.text("signal").strip(), None, {}
    if not name:
        problems["signal"] = "Enter the name of the signal."
    try:
        value = json.loads(form.text("input").strip() or "null")
    except (ValueError, RecursionError) as error:
        problems["input"] = f'Enter JSON: {error}. Write a text with its quotes: "yes".'
    return {"name": name, "input": value}, problems
