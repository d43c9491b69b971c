"""Starts runs with a form, as the user."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import RedirectResponse
from starlette.routing import Route

from perdure.api.labels import API_VERSION
from perdure.api.lenient import mapping
from perdure.client.errors import CliError, ExistsError
from perdure.console import listed
from perdure.console.forms import InputForm
from perdure.console.problems import explain
from perdure.console.submissions import new_request_id, submitted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from perdure.api.lenient import Json
    from perdure.client.cluster import Cluster
    from perdure.console.site import Site

_MAX_PREFIX: Final = 52
"""Maximum characters of the name of a Workflow in the name of a run, which then is a valid label value."""

_WORKFLOW_ID: Final = "workflowId"
_CONFLICT: Final = 409
"""The status if another run exists already."""


class StartForm:
    """Serves the form that starts runs of a Workflow."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def routes(self) -> list[Route]:
        """The form, and its destination."""
        path = "/namespaces/{namespace}/workflows/{name}/start"
        return [Route(path, self.form, methods=["GET"]), Route(path, self.start, methods=["POST"])]

    async def form(self, request: Request) -> Response:
        """Show an empty form."""
        async with self._site.open(request) as cluster:
            workflow = await _read(cluster, request)
        form = _form(workflow, request)
        entered = {_WORKFLOW_ID: "", **{field.name: field.value for field in form.fields}}
        return self._shown(request, workflow, form, entered, request_id=new_request_id())

    async def start(self, request: Request) -> Response:
        """Start a run, or show the form with what is wrong."""
        given = await submitted(request)
        workflow_name, request_id = request.path_params["name"], given.request_id
        name = f"{workflow_name[:_MAX_PREFIX].rstrip('-.')}-{request_id}"
        async with self._site.open(request) as cluster:
            workflow = await _read(cluster, request)
            form = _form(workflow, request)
            filled = await asyncio.to_thread(form.fill, given.text)
            status, problems = 422, filled.problems
            if not problems:
                spec = {"workflow": {"name": workflow_name}, "workflowId": given.text(_WORKFLOW_ID).strip() or None}
                status, problems = await _create(cluster, name, {**spec, "input": filled.input})
        if not problems:
            run = request.url_for("run", namespace=request.path_params["namespace"], name=name)
            return RedirectResponse(str(run.path), status_code=303)
        entered = {each: given.text(each) for each in (_WORKFLOW_ID, *(field.name for field in form.fields))}
        shown = {"status": status, "problems": problems}
        # A request that has failed may have created the run. So the form keeps its ID, unless another run has used it.
        next_id = new_request_id() if status == _CONFLICT else request_id
        return self._shown(request, workflow, form, entered, request_id=next_id, **shown)

    def _shown(
        self, request: Request, workflow: Json, form: InputForm, entered: Mapping[str, str], **values: Any
    ) -> Response:
        labels = {field.name: (f"field-{number}", field.label) for number, field in enumerate(form.fields, 1)}
        return self._site.show(
            request,
            "start.html",
            row=listed.workflow(workflow),
            form=form,
            entered=entered,
            labels={**labels, _WORKFLOW_ID: ("workflow-id", "Workflow ID")},
            as_json=_as_json(request),
            **{"problems": {}, **values},
        )


async def _read(cluster: Cluster, request: Request) -> Json:
    return await cluster.read("Workflow", "workflows", request.path_params["name"])


def _form(workflow: Json, request: Request) -> InputForm:
    return InputForm(mapping(workflow.get("spec")), as_json=_as_json(request))


def _as_json(request: Request) -> bool:
    return "json" in request.query_params


async def _create(cluster: Cluster, name: str, spec: Json) -> tuple[int, Mapping[str, str]]:
    """Create a run, unless the same form has created it before.

    Returns:
        The HTTP status, and what is wrong by the names of the fields; empty if the run exists.
    """
    if spec["workflowId"] is not None:
        other = await cluster.runs.open_run(spec["workflowId"])
        if other not in {None, name}:
            return _CONFLICT, {_WORKFLOW_ID: f"The open run {other} has this workflow ID. Choose another one."}
    body = {
        "apiVersion": API_VERSION,
        "kind": "WorkflowRun",
        "metadata": {"name": name},
        "spec": {key: each for key, each in spec.items() if each is not None},
    }
    try:
        await cluster.create("workflowruns", body)
    except ExistsError:
        found = mapping((await cluster.runs.named(name)).get("spec"))
        if {key: found.get(key) for key in spec} != spec:
            return _CONFLICT, {"": f"This form has already started {name}. To start another run, send it again."}
    except CliError as error:
        status, title, message = explain(error, "edit")
        return status, {"": f"{title}: {message}"}
    return 303, {}
