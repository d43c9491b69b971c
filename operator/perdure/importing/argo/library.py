"""The templates that a workflow of Argo can use: its own, inline templates of steps, and templates of WorkflowTemplates."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from perdure.importing.reader import ConversionReport, Fields, Object, visible

_CLUSTERED: Final = "ClusterWorkflowTemplate"
LIBRARY: Final = "library/"
"""What the home of a template begins with that is in none of the files."""


_CONTROLLER: Final = "workflow-controller-configmap"
"""The ConfigMap of Argo's controller, in its namespace."""


class Library:
    """WorkflowTemplates, ClusterWorkflowTemplates, and ConfigMaps of the files, by kind and name.

    They are those to which an object of one namespace can refer.
    """

    def __init__(self, documents: Sequence[Object], namespace: str) -> None:
        """Find the objects.

        Args:
            documents: All objects in the files.
            namespace: The namespace; empty for that of the kubeconfig.
        """
        self._specs: dict[tuple[str, str], Object] = {}
        self._maps: dict[str, Object] = {}
        self.locks: dict[str, str] = {}
        """The names of the locks that have become WorkflowLimits, by the names of those."""
        for (kind, name), each in visible([_placed(each) for each in documents], namespace).items():
            if kind in {"WorkflowTemplate", _CLUSTERED}:
                self._specs[kind, name] = each.get("spec") or {}
            elif kind == "ConfigMap":
                self._maps[name] = each.get("data") or {}

    def spec(self, name: str, *, cluster: bool) -> Object | None:
        """Return the spec of a template by name."""
        return self._specs.get((_CLUSTERED if cluster else "WorkflowTemplate", name))

    def texts(self) -> Iterator[Object]:
        """Return the specs of all templates."""
        yield from self._specs.values()

    def images(self) -> str:
        """Return the commands of images, in YAML, that the ConfigMap of Argo's controller has."""
        return str(self._maps.get(_CONTROLLER, {}).get("images") or "")

    def entry(self, reference: Mapping[str, Any]) -> Any:
        """The value of a `configMapKeyRef`, if the files have the ConfigMap."""
        return self._maps.get(str(reference.get("name")), {}).get(str(reference.get("key")))


def _placed(document: Object) -> Object:
    """Return an object without a namespace, if it can be read from all."""
    metadata = document.get("metadata")
    is_everywhere = document.get("kind") == _CLUSTERED or (metadata or {}).get("name") == _CONTROLLER
    if not isinstance(metadata, dict) or not is_everywhere:
        return document
    return {**document, "metadata": {key: each for key, each in metadata.items() if key != "namespace"}}


class Templates:
    """Finds templates. A home is where a template was found: names inside it are looked up there."""

    def __init__(self, spec: Object, path: str, library: Library, report: ConversionReport) -> None:
        self._library = library
        self._report = report
        self._defaults = spec.get("templateDefaults") or {}
        self._found: dict[tuple[str, str], tuple[Any, str]] = {}
        self._homes: set[str] = {""}
        self._add("", spec, path)

    def _add(self, home: str, spec: Object, path: str) -> None:
        for i, each in enumerate(spec.get("templates") or []):
            if isinstance(each, dict):
                self._found[home, str(each.get("name"))] = (each, f"{path}.templates[{i}]")

    def key(self, home: str, step: Fields) -> tuple[str, str] | None:
        """Take the reference to the template of a step.

        Returns:
            The home and the name of the template; None if it cannot be found, which is reported. The home of one that is in
            none of the files is that of a Workflow, from which it is copied.
        """
        if "inline" in step:
            name = str(step.data.get("name"))
            path = step.at("inline")
            self._found[path, name] = (step.take("inline"), path)
            self._inherit(path, home)
            return path, name
        if "templateRef" in step:
            reference = step.part("templateRef")
            of, cluster = reference.text("name") or "", bool(reference.take("clusterScope", False))
            home = f"{'cluster' if cluster else 'namespace'}/{of}"
            name = reference.text("template") or ""
            reference.done({})
            spec = self._library.spec(of, cluster=cluster)
            if spec is None:
                if cluster:
                    step.note("templateRef", "write the namespace of its Workflow in `from`, as `NAMESPACE/NAME`")
                return f"{LIBRARY}{of}", name
            if home not in self._homes:
                self._homes.add(home)
                self._add(home, spec, f"{home}: spec")
            return self._checked(step, "templateRef", home, name)
        return self._checked(step, "template", home, step.text("template") or "")

    def peek(self, home: str, step: Object) -> tuple[str, str] | None:
        """Return the home and the name of the template of a step, if it is known, without taking the reference."""
        reference = step.get("templateRef")
        if isinstance(reference, dict):
            home = f"{'cluster' if reference.get('clusterScope') else 'namespace'}/{reference.get('name')}"
        key = home, str(reference.get("template") if isinstance(reference, dict) else step.get("template"))
        return key if key in self._found else None

    def _inherit(self, inner: str, home: str) -> None:
        for (of, name), found in list(self._found.items()):
            if of == home:
                self._found.setdefault((inner, name), found)

    def _checked(self, step: Fields, field: str, home: str, name: str) -> tuple[str, str] | None:
        if (home, name) in self._found:
            return home, name
        step.gap(field, f"there is no template `{name}`; define it")
        return None

    def is_called(self, name: str) -> bool:
        """Whether a step calls a template of the workflow itself."""
        return any(step.get("template") == name for _, step in self._steps())

    def callers(self, name: str) -> set[str]:
        """The names of the steps that call a template with a name."""
        found = {name}
        for _, step in self._steps():
            of = step.get("template") or (step.get("templateRef") or {}).get("template")
            if of == name:
                found.add(str(step.get("name")))
        return found

    def _steps(self) -> Iterator[tuple[str, Object]]:
        queue: list[Any] = [data for data, _ in self._found.values()] + list(self._library.texts())
        while queue:
            value = queue.pop()
            if isinstance(value, dict):
                if "template" in value or "templateRef" in value:
                    yield str(value.get("name")), value
                queue += [each for key, each in value.items() if key != "templateRef"]
            elif isinstance(value, list):
                queue += value

    def fields(self, home: str, name: str) -> Fields:
        """Return a template for conversion, with the defaults of its workflow."""
        data, path = self._found[home, name]
        return Fields(_merged(self._defaults if home == "" else {}, data or {}), path, self._report)

    def data(self, home: str, name: str) -> Object:
        """Return the unchanged template."""
        found = self._found[home, name][0]
        return found if isinstance(found, dict) else {}


def _merged(defaults: Object, template: Object) -> Object:
    """Merge a template over its defaults, including maps. A default container only applies to templates with a container."""
    merged = dict(template)
    for key, value in defaults.items():
        if isinstance(value, dict) and isinstance(template.get(key), dict):
            merged[key] = _merged(value, template[key])
        elif key not in template and not (key in {"container", "script"} and isinstance(value, dict)):
            merged[key] = value
    return merged


def reads_json(spec: Object, library: Library) -> bool:
    """Whether a workflow reads parameters as JSON: in loops, or in expressions."""
    text = json.dumps([spec, *library.texts()])
    return any(word in text for word in ("withParam", "fromJSON", "fromJson", "jsonpath"))


def structured(text: str, parses: bool) -> Any:
    """Return the value of a parameter; a JSON list or object is parsed if the workflow reads it as such."""
    if parses and text.lstrip()[:1] in {"[", "{"}:
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def default_of(parameter: Object, library: Library) -> Any:
    """Return the value of a declared parameter; None if it has no value."""
    value = parameter.get("value", parameter.get("default"))
    source = parameter.get("valueFrom")
    if value is not None or not isinstance(source, dict):
        return value
    if isinstance(source.get("configMapKeyRef"), dict):
        value = library.entry(source["configMapKeyRef"])
    return source.get("default") if value is None else value


def as_blocks(spec: Object) -> Object:
    """Return a spec whose templates can all be called as lists of steps: a template with work becomes one with a single step.

    Args:
        spec: The spec of a WorkflowTemplate.
    """
    return {**spec, "templates": [_as_block(each) for each in spec.get("templates") or []]}


def _as_block(template: Any) -> Any:
    if not isinstance(template, dict) or "steps" in template or "dag" in template:
        return template
    name, inputs, outputs = template.get("name"), template.get("inputs") or {}, template.get("outputs") or {}

    def names(of: Object, kind: str) -> list[str]:
        return [str(each["name"]) for each in of.get(kind) or [] if "name" in each]

    def passed(kind: str, field: str) -> list[Object]:
        return [{"name": each, field: f"{{{{inputs.{kind}.{each}}}}}"} for each in names(inputs, kind)]

    arguments = {"parameters": passed("parameters", "value"), "artifacts": passed("artifacts", "from")}
    of = f"steps.{name}.outputs"
    return {
        "name": name,
        "inputs": {
            "parameters": inputs.get("parameters") or [],
            "artifacts": [
                {key: each[key] for key in ("name", "optional") if key in each}
                for each in inputs.get("artifacts") or []
            ],
        },
        "steps": [[{"name": name, "inline": template, "arguments": arguments}]],
        "outputs": {
            "parameters": [
                {"name": each, "valueFrom": {"parameter": f"{{{{{of}.parameters.{each}}}}}"}}
                for each in names(outputs, "parameters")
            ],
            "artifacts": [
                {"name": each, "from": f"{{{{{of}.artifacts.{each}}}}}"} for each in names(outputs, "artifacts")
            ],
        },
    }
