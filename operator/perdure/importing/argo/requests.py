"""Converts Argo's `http` and `resource` templates to the same kinds of work on Perdure.

A `resource` that only kubectl can do, such as to delete by labels, becomes a container that runs it, as Argo's executor does.
"""

import re
from typing import Final

import yaml

from perdure.importing.argo.containers import parsed
from perdure.importing.argo.scope import PodScope, Shape, is_tag
from perdure.importing.expressions import TAG, UntranslatableError, expression, literal, member, template
from perdure.importing.programs import not_expanded
from perdure.importing.reader import Fields, Object, as_text

_ACTIONS: Final = {"create": "Create", "apply": "Apply", "patch": "Patch", "delete": "Delete", "get": "Get"}
_PATCHES: Final = {"strategic": "Strategic", "merge": "Merge", "json": "Json"}
_REQUIREMENT: Final = re.compile(r"\s*(!?)([A-Za-z_][-.\w]*)\s*(?:(==|=|!=|>|<)\s*(.*?)|(in|notin)\s*\(([^)]*)\))?\s*")
_MISSING: Final[Object] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "missing"}}
"""A placeholder for an object that was not imported."""
_USUAL: Final = {
    True: frozenset({"--ignore-not-found", "--ignore-not-found=true", "--wait", "--wait=true"}),
    False: frozenset({"--validate=false"}),
}
"""Flags of kubectl for what a `resource` always does, for `delete` and for other actions."""
_KUBECTL: Final = "registry.k8s.io/kubectl:v1.34.1"
"""The image with kubectl; its entry point is the program. Argo's executor contains it."""
_OWN: Final = frozenset({"workflow", "workflows", "wf", "workflows.argoproj.io"})
"""Names of the kind Workflow for kubectl."""
_PATH: Final = re.compile(r"\.([A-Za-z_][-\w]*)|\[([0-9]+)\]")


def http(source: Fields, scope: PodScope, *, prints: bool) -> Object:
    """Return the `http` of an activity.

    Args:
        source: The `http` of a template.
        scope: The scope of references.
        prints: Whether a step reads the body of the response.
    """
    request: Object = {"method": source.text("method") or "GET", "url": _text(source, "url", scope)}
    headers = [_header(each, scope) for each in source.parts("headers")]
    if headers:
        request["headers"] = headers
    if "body" in source:
        request["body"] = _text(source, "body", scope)
    seconds = source.text("timeoutSeconds")
    if seconds:
        request["timeout"] = f"{seconds}s"
    condition = source.text("successCondition")
    if condition is not None:
        try:
            request["successCondition"] = "${" + expression(_inlined(condition, scope), _Response(scope).resolve) + "}"
        except UntranslatableError as error:
            source.gap("successCondition", str(error))
    if prints:
        request["output"] = "${response.body}"
    source.done({"insecureSkipVerify": "set `ca`, with the certificates of the authority", "bodyFrom": "set `body`"})
    return request


def _text(source: Fields, name: str, scope: PodScope) -> str:
    try:
        return template(source.text(name) or "", scope.resolve, is_tag)
    except UntranslatableError as error:
        source.gap(name, str(error))
        return "http://missing"


def _header(header: Fields, scope: PodScope) -> Object:
    fields: Object = {"name": header.text("name") or ""}
    secret = header.part("valueFrom").take("secretKeyRef")
    if isinstance(secret, dict):
        if secret.get("optional"):
            header.gap("valueFrom.secretKeyRef.optional", "the Secret of a header must exist; create it")
        fields["secret"] = {"name": secret.get("name"), "key": secret.get("key")}
    if "value" in header:
        fields["value"] = _text(header, "value", scope)
    return fields


def _inlined(text: str, scope: PodScope) -> str:
    """Return an expression with its tags replaced by constants."""
    return template(text, scope.resolve, is_tag).replace("$${", "${")


class _Response:
    """The scope of references in a condition on a response."""

    def __init__(self, scope: PodScope) -> None:
        self._scope = scope

    def resolve(self, path: tuple[str, ...]) -> str:
        """Translate a reference."""
        match path:
            case ("response", "statusCode"):
                return "response.status"
            case ("response", "body"):
                return "response.body"
            case ("response", "headers", name):
                return member("response.headers", name.lower())
        return self._scope.resolve(path)


def resource(source: Fields, scope: PodScope, account: str, outputs: list[Fields]) -> tuple[Object, Shape]:
    """Return the `resource` of an activity, and the shape of its output.

    Args:
        source: The `resource` of a template.
        scope: The scope of references.
        account: The ServiceAccount.
        outputs: The output parameters.
    """
    action = source.text("action") or ""
    if action not in _ACTIONS:
        source.gap("action", f"`{action}` has no counterpart; use create, apply, patch, delete, or get")
    manifest = _manifest(source, scope)
    fields: Object = {"action": _ACTIONS.get(action, "Get"), "serviceAccountName": account}
    strategy = source.text("mergeStrategy") or "strategic"
    if not {"apiVersion", "kind"} <= manifest.keys() or not _metadata(manifest).keys() & {"name", "generateName"}:
        source.gap("manifest", "must have apiVersion, kind, and metadata.name: they name the object")
        manifest = {**_MISSING, **manifest, "metadata": {"name": "missing", **_metadata(manifest)}}
    if action == "patch":
        identity = {key: manifest[key] for key in ("apiVersion", "kind", "metadata") if key in manifest}
        fields |= {"manifest": identity, "patch": manifest, "patchType": _PATCHES.get(strategy, "Merge")}
    else:
        fields["manifest"] = manifest
    _drop_usual_flags(source, action)
    if source.take("setOwnerReference", False):
        fields["owned"] = True
    for name in ("successCondition", "failureCondition"):
        text = source.text(name)
        if text is not None:
            try:
                fields[name] = "${" + _requirements(_inlined(text, scope)) + "}"
            except UntranslatableError as error:
                source.gap(name, str(error))
    source.done(
        {"flags": "an object is sent as it is, without kubectl", "manifestFrom": "write the manifest into `manifest`"}
    )
    values = {each.text("name") or "": _selected(each) for each in outputs}
    shape = Shape(tuple(values))
    if shape.is_plain:
        fields["output"] = next(iter(values.values()))
    elif values:
        fields["output"] = values
    return fields, shape


def needs_kubectl(source: Object) -> bool:
    """Whether only kubectl does what a `resource` says: its flags name the objects, or it patches its own pod."""
    action, manifest = source.get("action"), source.get("manifest")
    flags = list(map(str, source.get("flags") or []))
    if {"successCondition", "failureCondition", "setOwnerReference", "manifestFrom"} & source.keys():
        return False
    if action == "patch":
        return bool(manifest) and ((bool(flags) and not flags[0].startswith("-")) or "{{pod.name}}" in str(manifest))
    return action in {"delete", "get"} and not manifest and bool(flags)


def kubectl(source: Fields) -> Object:
    """Return the `container` of Argo that runs kubectl for a `resource`, with the arguments that Argo's executor has.

    Args:
        source: The `resource` of a template.
    """
    action, text = source.text("action") or "", source.take("manifest", "")
    flags = [as_text(each) for each in source.take("flags", [])]
    manifest = text if isinstance(text, str) else as_text(text)
    line = [action]
    if action == "delete":
        line.append("--ignore-not-found")
    if action == "patch":
        line += ["--type", source.text("mergeStrategy") or "strategic", "--patch", not_expanded(manifest)]
        line += [] if flags and not flags[0].startswith("-") else [_identity(source, manifest)]
    if flags[1:] == ["{{workflow.name}}"] and flags[0].lower() in _OWN:
        source.note("flags", "the run is the object `workflowruns.perdure.dev` with the name of the run")
        flags = ["workflowruns.perdure.dev", *flags[1:]]
    source.note("", f"runs kubectl in a container (`{_KUBECTL}`), with the permissions of its ServiceAccount")
    source.drop("mergeStrategy")
    source.done({})
    return {"image": _KUBECTL, "args": [*line, *flags, "-o", "name" if action == "delete" else "json"]}


def _identity(source: Fields, manifest: str) -> str:
    """Return the argument of kubectl that names the object of a patch."""
    tags = [found[0] for found in TAG.finditer(manifest)]
    marks = (f"argo-tag-{i}-" for i in range(len(tags)))
    try:
        found = yaml.safe_load(TAG.sub(lambda _: next(marks), manifest))
    except yaml.YAMLError as error:
        source.gap("manifest", " ".join(str(error).split()))
        return ""
    data = found if isinstance(found, dict) else {}
    kind, name = str(data.get("kind") or ""), str(_metadata(data).get("name") or "")
    group, _, version = str(data.get("apiVersion") or "").rpartition("/")
    if not (kind and name and version):
        source.gap("manifest", "must have apiVersion, kind, and metadata.name: they name the object")
    name = re.sub("argo-tag-([0-9]+)-", lambda each: tags[int(each[1])], name)
    return f"{kind.lower()}.{version}.{group}/{name}"


def _drop_usual_flags(source: Fields, action: str) -> None:
    if _USUAL[action == "delete"].issuperset(map(str, source.data.get("flags") or [])):
        source.drop("flags")


def _manifest(source: Fields, scope: PodScope) -> Object:
    """Return the object of a `resource`. Tags become expressions after the YAML is parsed."""
    raw = source.take("manifest", "")
    text = raw if isinstance(raw, str) else as_text(raw)
    try:
        manifest = parsed(text, scope.resolve, is_tag, str)
    except (yaml.YAMLError, UntranslatableError) as error:
        source.gap("manifest", " ".join(str(error).split()))
        return dict(_MISSING)
    if not isinstance(manifest, dict):
        source.gap("manifest", "must be one object")
        return dict(_MISSING)
    return manifest


def _metadata(manifest: Object) -> Object:
    found = manifest.get("metadata")
    return found if isinstance(found, dict) else {}


def _requirements(text: str) -> str:
    """Convert a condition on fields of the object from the syntax of label selectors."""
    parts, end = [], 0
    for found in re.finditer(r"(?:[^,(]|\([^)]*\))+", text):
        matched = _REQUIREMENT.fullmatch(found[0])
        if matched is None:
            raise UntranslatableError(f"`{text}` cannot be translated; write it in CEL, with `object`")
        parts.append(_requirement(matched))
        end = found.end()
    if not parts or text[end:].strip(", "):
        raise UntranslatableError(f"`{text}` cannot be translated; write it in CEL, with `object`")
    return " && ".join(parts)


def _requirement(found: re.Match[str]) -> str:
    absent, key, sign, value, word, values = found.groups()
    field = _field("object", key)
    if sign:
        return f"{field} {'==' if sign == '=' else sign} {_compared(value or '')}"
    if word:
        listed = ", ".join(_compared(each.strip()) for each in (values or "").split(","))
        return f"{'!' if word == 'notin' else ''}({field} in [{listed}])"
    parent, _, name = key.rpartition(".")
    present = f"has({member(_field('object', parent) if parent else 'object', name)})"
    return f"!{present}" if absent else present


def _field(base: str, path: str) -> str:
    for part in path.split("."):
        base = f"{base}[{part}]" if part.isdigit() else member(base, part)
    return base


def _compared(text: str) -> str:
    text = text.strip().strip("\"'")
    return text if re.fullmatch(r"-?[0-9]+|true|false", text) else literal(text)


def _selected(output: Fields) -> str:
    """Return the value of an output parameter: a simple path in the object."""
    source = output.part("valueFrom")
    text = (source.text("jsonPath") or source.text("jqFilter") or "").strip().removeprefix("{").removesuffix("}")
    source.done({"default": "the field must exist; write the default where the output is read"})
    output.drop("globalName", "description")
    output.done({})
    if text == ".":
        return "${object}"
    path, end = "object", 0
    for found in _PATH.finditer(text):
        if found.start() != end:
            break
        path = f"{path}[{found[2]}]" if found[2] else member(path, found[1])
        end = found.end()
    if not text or end != len(text):
        output.gap(
            "valueFrom", f"`{text}` is not a simple path, such as `{{.status.phase}}`; write it in CEL, with `object`"
        )
        return "${object.metadata.name}"
    return "${" + path + "}"
