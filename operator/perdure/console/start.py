"""Starts runs with a form, as the user.

The form for the input is made from the JSON Schema of the Workflow, without any request.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import RedirectResponse
from starlette.routing import Route

from perdure.api.json_values import mapping, text
from perdure.api.labels import API_VERSION
from perdure.client.errors import AlreadyExistsError, ClientError
from perdure.console import rows
from perdure.console.forms import new_request_id, submitted
from perdure.console.site import explain
from perdure.language.schemas import InputCheck, InputSchemaError, UncheckedError, input_check, target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from starlette.requests import Request
    from starlette.responses import Response

    from perdure.api.json_values import Json
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
        return self._page(request, workflow, form, entered, request_id=new_request_id())

    async def start(self, request: Request) -> Response:
        """Start a run, or show the form with what is wrong."""
        submission = await submitted(request)
        workflow_name, request_id = request.path_params["name"], submission.request_id
        name = f"{workflow_name[:_MAX_PREFIX].rstrip('-.')}-{request_id}"
        async with self._site.open(request) as cluster:
            workflow = await _read(cluster, request)
            form = _form(workflow, request)
            filled = await asyncio.to_thread(form.fill, submission.text)
            status, problems = 422, filled.problems
            if not problems:
                spec = {
                    "workflow": {"name": workflow_name},
                    "workflowId": submission.text(_WORKFLOW_ID).strip() or None,
                }
                status, problems = await _create(cluster, name, {**spec, "input": filled.input})
        if not problems:
            run = request.url_for("run", namespace=request.path_params["namespace"], name=name)
            return RedirectResponse(str(run.path), status_code=303)
        entered = {each: submission.text(each) for each in (_WORKFLOW_ID, *(field.name for field in form.fields))}
        shown = {"status": status, "problems": problems}
        # A request that has failed may have created the run. So the form keeps its ID, unless another run has used it.
        next_id = new_request_id() if status == _CONFLICT else request_id
        return self._page(request, workflow, form, entered, request_id=next_id, **shown)

    def _page(
        self, request: Request, workflow: Json, form: InputForm, entered: Mapping[str, str], **values: Any
    ) -> Response:
        labels = {field.name: (f"field-{number}", field.label) for number, field in enumerate(form.fields, 1)}
        return self._site.show(
            request,
            "start.html",
            row=rows.workflow(workflow),
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
    except AlreadyExistsError:
        found = mapping((await cluster.runs.get(name)).get("spec"))
        if {key: found.get(key) for key in spec} != spec:
            return _CONFLICT, {"": f"This form has already started {name}. To start another run, send it again."}
    except ClientError as error:
        status, title, message = explain(error, "edit")
        return status, {"": f"{title}: {message}"}
    return 303, {}


# The form for the input

MAX_FIELDS: Final = 100
"""Maximum number of fields; an input with more is written as JSON."""


MAX_CHOICES: Final = 500


_MAX_PROBLEMS: Final = 20


_MAX_REFERENCES: Final = 10


_SCALARS: Final = (str, int, float, bool, type(None))


_INPUT: Final = "input"


class Control(StrEnum):
    """The control with which users enter a value."""

    TEXT = "text"
    LINES = "lines"
    INTEGER = "integer"
    NUMBER = "number"
    CHOICE = "choice"
    JSON = "json"


_TEXTS: Final = {Control.TEXT, Control.LINES}


_EXPECTED: Final = {Control.INTEGER: "Enter a whole number.", Control.NUMBER: "Enter a number."}


_HINTS: Final = {Control.INTEGER: "A whole number.", Control.NUMBER: "A number.", Control.JSON: "JSON."}


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """A field of the input, or the entire input."""

    key: str | None
    """The property; None for the entire input."""
    label: str
    description: str
    control: Control
    required: bool
    choices: tuple[str, ...] = ()
    """The JSON of each possible value."""
    value: str
    """The text at first."""

    @property
    def name(self) -> str:
        """The name of the field in the form."""
        return _INPUT if self.key is None else f"{_INPUT}.{self.key}"

    @property
    def hint(self) -> str:
        """The value that users must enter, in a few words."""
        return _HINTS.get(self.control, "")

    @property
    def options(self) -> Iterator[tuple[str, str]]:
        """The JSON of each possible value, and the text that users see."""
        for choice in self.choices:
            value = json.loads(choice)
            yield choice, value if isinstance(value, str) else choice

    def read(self, text: str) -> Any:
        """Convert the text of a user to a value.

        Raises:
            ValueError: The text is not valid; the message says what to enter.
        """
        if self.control in _TEXTS:
            return text
        if self.control is Control.CHOICE and text not in self.choices:
            raise ValueError("Select one of the values.")
        try:
            value = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise ValueError(_EXPECTED.get(self.control, f"Enter JSON: {error}.")) from None
        kinds = {Control.INTEGER: (int,), Control.NUMBER: (int, float)}.get(self.control)
        if kinds is not None and type(value) not in kinds:
            raise ValueError(_EXPECTED[self.control])
        return value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not a number in JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledForm:
    """The values that a user has entered."""

    input: Any
    """The input of the run; None for no input."""
    problems: Mapping[str, str]
    """The mistakes, by the names of the fields; the empty name stands for the entire form."""


class InputForm:
    """The form for the input of runs of a Workflow."""

    def __init__(self, spec: Json, *, as_json: bool = False) -> None:
        """Make a form.

        Args:
            spec: The spec of the Workflow.
            as_json: Whether users write the entire input as JSON.
        """
        declared = mapping(spec.get("input"))
        schema, default = mapping(declared.get("schema")), declared.get("default")
        self._check = _check(schema, default)
        self.fields = _fields(schema, default, as_json=as_json)

    @property
    def as_json(self) -> bool:
        """Whether users write the entire input as JSON."""
        return any(field.key is None for field in self.fields)

    def fill(self, entered: Callable[[str], str]) -> FilledForm:
        """Read and check what a user has entered.

        Args:
            entered: Returns the text of a field by its name; empty if the user left it out.
        """
        values: dict[str | None, Any] = {}
        problems: dict[str, str] = {}
        for field in self.fields:
            written = entered(field.name)
            if not (written if field.control in _TEXTS else written.strip()):
                if field.required:
                    problems[field.name] = "Enter a value."
                continue
            try:
                values[field.key] = field.read(written)
            except ValueError as error:
                problems[field.name] = str(error)
        value = values.get(None) if self.as_json else values
        if self.as_json and problems:
            return FilledForm(input=None, problems=problems)
        for name, message in self._problems(value):
            problems.setdefault(name, message)
        ordered = {name: problems[name] for name in (*(field.name for field in self.fields), "") if name in problems}
        return FilledForm(input=value, problems=ordered)

    def _problems(self, value: Any) -> Iterator[tuple[str, str]]:
        """Check a value against the schema; yields names of fields and messages."""
        names = {field.key: field.name for field in self.fields}
        try:
            for count, error in enumerate(self._check.errors(self._check.complete(value))):
                if count == _MAX_PROBLEMS:
                    return
                path: list[Any] = list(error.instance_path)
                missing = getattr(error.kind, "property", None) if error.kind.name == "required" and not path else None
                key = missing or (path[0] if path else None)
                name = names.get(key, names.get(None, ""))
                where = path if name == _INPUT or not name else path[1:]
                written = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
                yield name, f"{written.lstrip('.')}: {error.message}" if written else error.message
        except UncheckedError as error:
            yield names.get(None, ""), f"The input {error}."


def _check(schema: Json, default: Any) -> InputCheck:
    """Compile the schema; an invalid one, which the status of the Workflow reports, accepts everything."""
    try:
        return input_check(schema or None, default)
    except InputSchemaError:
        return InputCheck(default)


def _fields(schema: Json, default: Any, *, as_json: bool) -> Sequence[FormField]:
    root = _resolved(schema, schema)
    properties = mapping(root.get("properties"))
    if as_json or not 0 < len(properties) <= MAX_FIELDS or not isinstance(default, dict | None):
        written = "" if default is None else _json(default)
        description = text(root.get("description"))
        editor = FormField(
            key=None, label="Input", description=description, control=Control.JSON, required=False, value=written
        )
        return (editor,)
    needed, defaults = root.get("required"), mapping(default)
    required = {key for key in needed if isinstance(key, str)} if isinstance(needed, list) else set()
    made = [
        _field(key, _resolved(schema, part), defaults, required=key in required and key not in defaults)
        for key, part in properties.items()
    ]
    return sorted(made, key=lambda field: not field.required)


def _field(key: str, part: Json, defaults: Json, *, required: bool) -> FormField:
    first = defaults[key] if key in defaults else part.get("default")
    control, choices = _control(part)
    if control is Control.TEXT and isinstance(first, str) and "\n" in first:
        control = Control.LINES
    if first is not None and control in _TEXTS and not isinstance(first, str):
        control = Control.JSON
    value = "" if first is None else first if control in _TEXTS else _json(first)
    return FormField(
        key=key,
        label=text(part.get("title")) or key,
        description=text(part.get("description")),
        control=control,
        required=required,
        choices=choices,
        value=value,
    )


def _control(part: Json) -> tuple[Control, tuple[str, ...]]:
    """Return how users enter a value of a schema, and its possible values."""
    values = [part["const"]] if "const" in part else part.get("enum")
    kind = part.get("type")
    kinds = [each for each in kind if each != "null"] if isinstance(kind, list) else [kind]
    if values is None and kinds == ["boolean"]:
        values = [True, False]
    if (
        isinstance(values, list)
        and 0 < len(values) <= MAX_CHOICES
        and all(isinstance(each, _SCALARS) for each in values)
    ):
        return Control.CHOICE, tuple(map(_json, values))
    found = {"string": Control.TEXT, "integer": Control.INTEGER, "number": Control.NUMBER}
    return (found.get(str(kinds[0]), Control.JSON) if len(kinds) == 1 else Control.JSON), ()


def _resolved(root: Json, part: Any, depth: int = 0) -> Json:
    """Follow references, and choose the only alternative to null, as pydantic and zod write optional fields."""
    found = mapping(part)
    if depth == _MAX_REFERENCES:
        return found
    for keyword in ("anyOf", "oneOf"):
        if isinstance(found.get(keyword), list):
            others = [each for each in found[keyword] if each != {"type": "null"}]
            if len(others) == 1:
                rest = {key: each for key, each in found.items() if key != keyword}
                return {**_resolved(root, others[0], depth + 1), **rest}
    if isinstance(found.get("$ref"), str):
        try:
            referred = _resolved(root, target(root, found["$ref"]), depth + 1)
        except InputSchemaError:
            return found
        return {**referred, **{key: each for key, each in found.items() if key != "$ref"}}
    return found


def _json(value: Any) -> str:
    indent = 2 if isinstance(value, dict | list) and value else None
    return json.dumps(value, ensure_ascii=False, indent=indent)
