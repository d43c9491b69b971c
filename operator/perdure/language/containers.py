"""Expressions in activities that pods run.

These fields can contain them: `image`, `args`, and the `value` of `env` of containers and services; the `source` of a script;
every field of an HTTP request and of an action on a Kubernetes object; the `subPath` of a workspace; artifacts; and
`podSpecPatch`.

They are evaluated when the pod of an attempt is built, from the inputs of that attempt: the same attempt gives the same pod,
even after a restart of the operator. All other fields of a container are used unchanged.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from perdure.api.kinds.artifact import InputArtifact
from perdure.api.kinds.workflow import Activity, Http, HttpHeader, KubernetesResource
from perdure.language.cel import Meter
from perdure.language.expressions import ExpressionError, compile_template, format_text
from perdure.language.step_failures import EXPRESSION_ERROR, StepError, application

NAMES: Final = frozenset({"input", "run", "attempt"})
"""The root names of expressions in a container: the input of the activity, the run, the number of the attempt."""

_CONTAINERS: Final = ("containers", "initContainers")
_PLACEHOLDER: Final = "x"
_NOT_EXPANDED: Final = (".image", ".source", ".subPath")
"""Fields in which Kubernetes does not expand `$`."""
_ANY_VALUE: Final = ("http.body", "resource.manifest", "resource.patch")
"""Paths where an expression that is the whole text keeps the type of its value."""
_REFERENCE: Final = re.compile(r"artifacts\.inputs\[\d+\]\.from")
"""Paths where an expression must be the whole text, because its value is an artifact."""
_PATCH: Final = "podSpecPatch"
_EXPANDED: Final = re.compile(r"\.(command|args)\[|\.env\[")
"""Paths in a patch where Kubernetes expands `$(NAME)`."""
_OF_HTTP: Final = ("url", "query", "headers", "body")
_OF_RESOURCE: Final = ("manifest", "patch")
_Change = Callable[[str, str], Any]
"""Returns the replacement of the text at a path, which is relative to the activity."""


def places(definition: Activity) -> Iterator[tuple[str, str]]:
    """The texts of an activity that may contain expressions, with their paths relative to the activity."""
    found: list[tuple[str, str]] = []

    def note(path: str, text: str) -> str:
        found.append((path, text))
        return text

    _changed(definition, note)
    yield from found
    if definition.cache is not None:
        yield "cache.key", definition.cache.key


def resolve(definition: Activity, *, input: Any, run: Mapping[str, str], attempt: int) -> Activity:  # noqa: A002
    """Return the definition for one attempt, with every expression in its containers replaced by its value.

    Args:
        definition: Definition of the activity; not modified.
        input: Input of the activity.
        run: The value of `run` in expressions.
        attempt: Number of the attempt, from 1.

    Raises:
        StepError: An expression has no value.
    """
    scope, meter = {"input": input, "run": run, "attempt": attempt}, Meter()

    def evaluate(path: str, text: str) -> Any:
        try:
            template = compile_template(text, names=NAMES)
        except ExpressionError:
            return text  # a run that an older version started without this check
        try:
            return template.evaluate(scope, meter, _writer(path))
        except ExpressionError as error:
            message = f"activity `{definition.name}`: {path}: {error}"
            raise StepError(application(EXPRESSION_ERROR, message)) from error

    return _changed(definition, evaluate)


def with_placeholders(definition: Activity) -> Activity:
    """Return the definition for a dry run without an input, with each expression replaced by a letter."""

    def replace(path: str, text: str) -> Any:
        if _REFERENCE.fullmatch(path):
            return {"key": _PLACEHOLDER}
        try:
            return "".join(piece or _PLACEHOLDER for piece in compile_template(text).pieces)
        except ExpressionError:
            return text

    if any(path.startswith(_PATCH) for path, _ in places(definition)):
        # A letter is neither a quantity nor a number, so the API server would reject a pod that is valid in an attempt.
        definition = definition.model_copy(update={"pod_spec_patch": None})
    return _changed(definition, replace)


def without_expressions(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Escape the spec of a pod that was written for Kubernetes: a `${`, as in a shell, is not evaluated.

    Args:
        spec: The spec of a pod; not modified.
    """
    return _of_pod(spec, "", lambda _, text: text.replace("${", "$${"))


def has_computed_image(definition: Activity) -> bool:
    """Whether an image of the activity's pod is an expression, so that it is not known before an attempt begins."""
    return any(path.endswith(".image") for path, _ in places(definition))


def _writer(path: str) -> Callable[[Any], str] | None:
    """Return the function that writes values as text at a path; None if values keep their type."""
    if path.startswith(_ANY_VALUE) or _REFERENCE.fullmatch(path):
        return None
    if path.startswith(_PATCH):
        return _literal if _EXPANDED.search(path) else None
    return format_text if path.startswith(("http.", "artifacts.")) or path.endswith(_NOT_EXPANDED) else _literal


def _literal(value: Any) -> str:
    """Escape text so that Kubernetes does not change it: in `args` and `env`, `$(NAME)` is a variable and `$$` a dollar sign."""
    return format_text(value).replace("$", "$$")


def _changed(definition: Activity, change: _Change) -> Activity:
    """Return the definition with replaced texts wherever expressions are allowed; only texts with a `${` are replaced."""
    if any("${" in mount.sub_path for mount in definition.workspaces):
        mounts = [
            mount.model_copy(update={"sub_path": _changed_text(f"workspaces[{i}].subPath", mount.sub_path, change)})
            for i, mount in enumerate(definition.workspaces)
        ]
        definition = definition.model_copy(update={"workspaces": mounts})
    if definition.artifacts is not None:
        inputs = [
            _of_artifact(each, f"artifacts.inputs[{i}]", change) for i, each in enumerate(definition.artifacts.inputs)
        ]
        outputs = [
            each.model_copy(update={"key": _changed_text(f"artifacts.outputs[{i}].key", each.key, change)})
            for i, each in enumerate(definition.artifacts.outputs)
        ]
        artifacts = definition.artifacts.model_copy(update={"inputs": inputs, "outputs": outputs})
        definition = definition.model_copy(update={"artifacts": artifacts})
    if definition.services:
        services = [
            each.model_copy(update=_of_container(each.dump(), f"services[{i}]", change))
            for i, each in enumerate(definition.services)
        ]
        definition = definition.model_copy(update={"services": services})
    if definition.pod_spec_patch is not None:
        patch = _of_value(definition.pod_spec_patch, _PATCH, change)
        definition = definition.model_copy(update={"pod_spec_patch": patch})
    return definition.model_copy(update=_changed_work(definition, change))


def _changed_work(definition: Activity, change: _Change) -> dict[str, Any]:
    """The field that defines the work of the activity, with replaced texts."""
    if definition.container is not None:
        fields = _of_container(definition.container.dump(), "container", change)
        return {"container": definition.container.model_copy(update=fields)}
    if definition.script is not None:
        fields = _of_container(definition.script.dump(), "script", change)
        fields["source"] = _changed_text("script.source", definition.script.source, change)
        return {"script": definition.script.model_copy(update=fields)}
    if definition.http is not None:
        return {"http": _changed_fields(definition.http, "http", _OF_HTTP, change)}
    if definition.resource is not None:
        return {"resource": _changed_fields(definition.resource, "resource", _OF_RESOURCE, change)}
    if definition.pod_template is not None:
        made = _of_pod(definition.pod_template.spec.dump(), "podTemplate.spec.", change)
        fields = {key: made[key] for key in _CONTAINERS if key in made}
        spec = definition.pod_template.spec.model_copy(update=fields)
        return {"pod_template": definition.pod_template.model_copy(update={"spec": spec})}
    return {}


def _changed_fields(
    work: Http | KubernetesResource, path: str, names: Sequence[str], change: _Change
) -> Http | KubernetesResource:
    """A model with all texts in some of its fields replaced."""
    fields = {name: _of_value(getattr(work, name), f"{path}.{name}", change) for name in names}
    return work.model_copy(update=fields)


def _changed_text(path: str, value: Any, change: _Change) -> Any:
    return change(path, value) if isinstance(value, str) and "${" in value else value


def _of_value(value: Any, path: str, change: _Change) -> Any:
    """A value with all its texts replaced."""
    if isinstance(value, HttpHeader):
        return value.model_copy(update={"value": _changed_text(f"{path}.value", value.value, change)})
    if isinstance(value, dict):
        return {key: _of_value(entry, f"{path}.{key}", change) for key, entry in value.items()}
    if isinstance(value, list):
        return [_of_value(entry, f"{path}[{i}]", change) for i, entry in enumerate(value)]
    return _changed_text(path, value, change)


def _of_artifact(artifact: InputArtifact, path: str, change: _Change) -> InputArtifact:
    """An artifact with the texts of its source changed."""
    changed: dict[str, Any] = {
        "from_": _changed_text(f"{path}.from", artifact.from_, change),
        "key": _changed_text(f"{path}.key", artifact.key, change),
    }
    for name, source in (("http", artifact.http), ("raw", artifact.raw)):
        if source is not None:
            texts = {
                field: _changed_text(f"{path}.{name}.{field}", text, change) for field, text in source.dump().items()
            }
            changed[name] = source.model_copy(update=texts)
    return artifact.model_copy(update=changed)


def _of_pod(spec: Mapping[str, Any], path: str, change: _Change) -> dict[str, Any]:
    """The spec of a pod, with the texts of its containers replaced."""
    fields = {
        key: [
            {**one, **_of_container(one, f"{path}{key}[{i}]", change)} if isinstance(one, dict) else one
            for i, one in enumerate(spec[key])
        ]
        for key in _CONTAINERS
        if isinstance(spec.get(key), list)
    }
    return {**spec, **fields}


def _of_container(container: Mapping[str, Any], path: str, change: _Change) -> dict[str, Any]:
    """The fields of a container that may contain expressions, with replaced texts."""

    def text(where: str, value: Any) -> Any:
        return _changed_text(f"{path}.{where}", value, change)

    fields: dict[str, Any] = {}
    if "image" in container:
        fields["image"] = text("image", container["image"])
    if isinstance(container.get("args"), list):
        fields["args"] = [text(f"args[{i}]", value) for i, value in enumerate(container["args"])]
    if isinstance(container.get("env"), list):
        fields["env"] = [
            {**one, "value": text(f"env[{i}].value", one["value"])} if isinstance(one, dict) and "value" in one else one
            for i, one in enumerate(container["env"])
        ]
    return fields
