"""Checks the HTTP request of an activity, or its action on a Kubernetes object."""

from collections.abc import Iterator
from typing import Any, Final

from perdure.api.kinds.work import Http, KubernetesResource, ResourceAction
from perdure.api.kinds.workflow import Activity
from perdure.language.containers import NAMES
from perdure.language.expression_text import ExpressionError
from perdure.language.expressions import Template, compile_condition, compile_template
from perdure.language.program import Finding

RESPONSE: Final = "response"
"""The name of the response in conditions and the output."""
OBJECT: Final = "object"
"""The name of the object from the API server in conditions and the output."""


def later_templates(path: str, activity: Activity) -> tuple[list[tuple[str, Template, bool]], list[Finding]]:
    """Return the expressions that the pod evaluates after its work, and the errors of those that do not compile.

    Args:
        path: The path of the activity.
        activity: The definition of the activity.

    Returns:
        The path, the template, and whether it is a condition, for each expression.
    """
    given = activity.http or activity.resource
    if given is None:
        return [], []
    names = NAMES | {RESPONSE if activity.http is not None else OBJECT}
    texts = [("successCondition", given.success_condition, True), ("output", given.output, False)]
    if activity.resource is not None:
        texts.append(("failureCondition", activity.resource.failure_condition, True))
    templates, findings = [], []
    for field, text, condition in texts:
        if text is None:
            continue
        place = f"{path}.{activity.work}.{field}"
        try:
            compile_one = compile_condition if condition else compile_template
            templates.append((place, compile_one(text, path=place, names=names), condition))
        except ExpressionError as error:
            what = f"`{error.expression}`: " if error.expression else ""
            findings.append(Finding(error.path or place, f"{what}{error.message}"))
    return templates, findings


def of_work(path: str, activity: Activity) -> Iterator[Finding]:
    """Check the HTTP request or the action of an activity.

    Args:
        path: The path of the activity.
        activity: The definition of the activity.
    """
    if activity.http is not None:
        yield from _of_http(f"{path}.http", activity.http)
    if activity.resource is not None:
        yield from _of_resource(f"{path}.resource", activity.resource)


def _of_http(path: str, http: Http) -> Iterator[Finding]:
    if not http.url.startswith(("http://", "https://", "${")):
        yield Finding(f"{path}.url", "must start with `https://` or `http://`")
    if http.body is not None and http.method in {"GET", "HEAD"}:
        yield Finding(f"{path}.body", f"must not be used with `method: {http.method}`; use POST or PUT")


def _of_resource(path: str, resource: KubernetesResource) -> Iterator[Finding]:
    manifest, action = resource.manifest, resource.action
    metadata = manifest.get("metadata")
    names: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    for field in ("apiVersion", "kind"):
        if not isinstance(manifest.get(field), str):
            yield Finding(f"{path}.manifest.{field}", f"must be set, such as `{field}: {_EXAMPLES[field]}`")
    generated = action is ResourceAction.CREATE and isinstance(names.get("generateName"), str)
    if not isinstance(names.get("name"), str) and not generated:
        also = ", or `generateName`" if action is ResourceAction.CREATE else ""
        yield Finding(f"{path}.manifest.metadata.name", f"must be set{also}")
    if (resource.patch is not None) != (action is ResourceAction.PATCH):
        yield Finding(f"{path}.patch", "must be used with `action: Patch`, and only with it")
    if resource.owned and action not in {ResourceAction.CREATE, ResourceAction.APPLY}:
        yield Finding(f"{path}.owned", "must be used with `action: Create` or `action: Apply`")


_EXAMPLES: Final = {"apiVersion": "batch/v1", "kind": "Job"}
