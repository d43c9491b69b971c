"""Converts what Argo writes inside `container`, `script`, and `containerSet`; `templates` has the other fields of a template.

A `containerSet` has several containers in one pod, some of which wait for others. Fields of pods with tags become a
`podSpecPatch`, because Perdure only evaluates expressions there. Argo's own patches are applied as strategic merges.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import yaml

from perdure.api.pods import NEEDS
from perdure.importing.argo.images import EntryPoints
from perdure.importing.argo.scope import PodScope, ServiceScope, is_tag
from perdure.importing.expressions import TAG, Resolve, UntranslatableError, literal, tag, template
from perdure.importing.programs import Returns, not_expanded, option_of, returning
from perdure.importing.reader import ConversionReport, Fields, Object

_POD_VARIABLE: Final[Object] = {
    "name": "ARGO_POD_NAME",
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}},
}
"""The variable with the name of the pod."""
_UNKNOWN: Final = (
    "must be set, because a shell starts the command; or import it with the ConfigMap of Argo's controller, whose `images` "
    "have the commands of images"
)
_NOT_EVALUATED: Final = "tags are not evaluated in labels and annotations; write the value here"


class Containers:
    """Converts the containers of one template."""

    def __init__(self, scope: PodScope | ServiceScope, report: ConversionReport, entry_points: EntryPoints) -> None:
        self._scope = scope
        self._report = report
        self._entry_points = entry_points
        self._names_pod = False
        """Whether the container that is converted refers to the name of its pod."""

    def main(self, container: Fields, returns: Returns) -> Object:
        """Return the container of an activity.

        Args:
            container: The `container` of a template.
            returns: What steps read of it.
        """
        if returns:
            self.complete(container)
        fields = self.plain(container)
        if not returns:
            return _with_fixed_command(fields, container)
        if not fields.get("command"):
            container.gap("command", _UNKNOWN)
            return fields
        return {**fields, **returning([*fields.pop("command"), *fields.pop("args", [])], returns)}

    def complete(self, container: Fields) -> None:
        """Set the command of a container that has none to the entry point of its image, if that is known."""
        line = None if container.data.get("command") else self._entry_points.line(container.data)
        if line:
            container.data |= {"command": line, "args": []}

    def script(self, script: Fields, returns: Returns) -> Object:
        """Return the container of an activity that runs a script."""
        source = self.text(not_expanded(script.text("source") or ""), script.at("source"))
        fields = self.plain(script)
        command = [*fields.pop("command", ["sh"]), *fields.pop("args", [])]
        option = option_of(command[0])
        if option is None:
            script.gap("command", f"`{command[0]}` has no known option for a program; put the script into the image")
            return {**fields, "command": command}
        if returns:
            return {**fields, **returning([*command, option, source], returns)}
        return {**fields, "command": command, "args": [option, source]}

    def as_script(self, script: Fields, *, prints: bool) -> Object:
        """Return the `script` of an activity."""
        source = self.text(script.text("source") or "", script.at("source"))
        fields = self.plain(script)
        command = fields.pop("command", None)
        if command and any("${" in word.replace("$${", "") for word in command):
            script.gap("command", "the interpreter must not be computed; name it")
        if command and command[1:] == ["-c"]:  # such as `sh -c`, which runs the executable file of Argo
            command = command[:1]
        interpreter = {"command": [word.replace("$${", "${") for word in command]} if command else {}
        return {**fields, **interpreter, **({"result": "Output"} if prints else {}), "source": source or "\n"}

    def plain(self, container: Fields) -> Object:
        """Return a container with converted expressions, otherwise unchanged."""
        if container.data.get("name") in {"", "main"}:
            container.drop("name")
        container.drop("mirrorVolumeMounts")  # those of the main container are read before
        fields: Object = {}
        self._names_pod = False
        for key in list(container.data):
            value = container.take(key)
            if value not in (None, {}, []):
                fields[key] = self._field(key, value, container.at(key))
        if self._names_pod:  # before the variables that refer to it
            fields["env"] = [_POD_VARIABLE, *fields.get("env", [])]
        return fields

    def _field(self, key: str, value: Any, path: str) -> Any:
        if key in {"args", "command"} and isinstance(value, list):
            return [self._expanded(str(each), f"{path}[{i}]") for i, each in enumerate(value)]
        if key == "env" and isinstance(value, list):
            return [self._variable(each, f"{path}[{i}]") for i, each in enumerate(value)]
        return self.text(str(value), path) if key == "image" else self.computed(value, path)

    def _variable(self, variable: Any, path: str) -> Any:
        if not isinstance(variable, dict) or variable.get("value") is None:
            return self.computed(variable, path)
        return {**variable, "value": self._expanded(str(variable["value"]), f"{path}.value")}

    def _expanded(self, text: str, path: str) -> str:
        """Return a text in which Kubernetes expands variables, such as the name of the pod, with converted tags."""
        return self.text(text, path, self._with_pod)

    def _with_pod(self, path: tuple[str, ...]) -> str:
        if path != ("pod", "name"):
            return self._scope.resolve(path)
        self._names_pod = True
        return literal(f"$({_POD_VARIABLE['name']})")

    def text(self, text: str, path: str, resolve: Resolve | None = None) -> str:
        """Return a text with converted tags; those without a counterpart are reported and removed."""
        try:
            return template(text, resolve or self._scope.resolve, is_tag)
        except UntranslatableError as error:
            self._report.gap(path, str(error))
            return TAG.sub("", text).replace("${", "$${")

    def patch(self, text: str, path: str) -> Any:
        """Return a `podSpecPatch`, with `Computed` for texts with tags.

        Raises:
            ValueError: The text is not a valid patch.
        """
        try:
            return parsed(text, self._scope.resolve, is_tag, computed)
        except yaml.YAMLError as error:
            raise ValueError(" ".join(str(error).split())) from error
        except UntranslatableError as error:
            self._report.gap(path, str(error))
            return {}

    def computed(self, value: Any, path: str) -> Any:
        """Return the value of a field of a pod, with `Computed` for texts with tags."""
        return _changed(value, path, lambda text, where: computed(self.text(text, where)))

    def fixed(self, value: Any, path: str) -> Any:
        """Return the value of a field that is not evaluated.

        Texts with tags are reported and left empty, unless their values are known.
        """

        def change(text: str, where: str) -> str:
            converted = computed(self.text(text, where))
            if isinstance(converted, Computed):
                self._report.gap(where, _NOT_EVALUATED)
                return ""
            return str(converted)

        return _changed(value, path, change)


def _changed(value: Any, path: str, change: Callable[[str, str], str]) -> Any:
    if isinstance(value, str):
        return change(value, path)
    if isinstance(value, list):
        return [_changed(each, f"{path}[{i}]", change) for i, each in enumerate(value)]
    if isinstance(value, dict):
        return {key: _changed(each, f"{path}.{key}", change) for key, each in value.items()}
    return value


def _with_fixed_command(container: Object, source: Fields) -> Object:
    """Return a container without expressions in `command`: words from the first expression on become arguments."""
    command = container.get("command", [])
    first = next((i for i, word in enumerate(command) if "${" in word), len(command))
    if first == 0 and command:
        source.gap("command", "the program must not be computed; start it with a shell, with the tag as an argument")
    if 0 < first < len(command):
        container["args"] = [*command[first:], *container.get("args", [])]
    kept = [word.replace("$${", "${") for word in command[:first]]
    return {**container, **({"command": kept} if kept else {})}


_MAIN = "main"
"""The container that returns the outputs."""


@dataclass(frozen=True, slots=True)
class ContainerSet:
    """The containers of an activity."""

    main: Object
    before: Sequence[Object] = ()
    """Init containers, which run in order."""
    others: Sequence[Object] = ()
    """Containers that run next to the main one, in an order that `needs` define."""


def container_set(group: Fields, containers: Containers, returns: Returns) -> ContainerSet:
    """Convert a `containerSet`.

    Containers that need each other in a row become init containers, which needs nothing of their images. Others have `needs`.

    Args:
        group: The `containerSet`.
        containers: Converts a container.
        returns: What steps read of the main container.
    """
    shared = group.take("volumeMounts", [])
    sources = {str(each.data.get("name")): each for each in group.parts("containers")}
    needs = {name: each.take("dependencies", []) for name, each in sources.items()}
    for name, each in sources.items():
        for missing in set(needs[name]) - sources.keys():
            each.gap("dependencies", f"there is no container `{missing}`; define it")
    if "retryStrategy" in group:
        group.gap("retryStrategy", "containers are not retried by themselves; set it on the template")
        group.drop("retryStrategy")
    group.done({})
    if not needs:
        group.gap("containers", "must have a container")
        return ContainerSet({"image": "missing"})
    if returns and _MAIN in needs:
        after = _dependents(_MAIN, needs)
        if after:
            group.note(
                "containers", "outputs are read when `main` has ended, not after the containers that depend on it"
            )
        # Argo reads outputs when all containers have ended, so they may be those of any of them.
        needs[_MAIN] = [name for name in needs if name != _MAIN and name not in after]
    for name, each in sources.items():
        if _waits(name, needs) or (returns and name == _MAIN):
            containers.complete(each)
    ordered = _ordered(needs)
    unknown = [name for name in ordered if not sources[name].data.get("command") and _waits(name, needs)]
    in_row = _is_row(ordered, needs)
    if unknown and not in_row:
        names = ", ".join(f"`{name}`" for name in unknown)
        group.note("containers", f"they run one after the other; for parallel ones, set the `command` of {names}")
    main = _MAIN if _MAIN in needs and not (unknown or in_row) else ordered[-1]
    if returns and _MAIN in needs and main != _MAIN:
        group.gap("containers", "outputs are those of the last container; let `main` depend on the others")
    made = {
        name: _converted(sources[name], containers, returns if name == main else Returns(), shared) for name in ordered
    }
    if unknown or in_row:
        return ContainerSet(made[main], [{"name": name, **made[name]} for name in ordered[:-1]])
    converted = {name: {"name": name, NEEDS: needs[name], **made[name]} for name in ordered}
    return ContainerSet(converted.pop(main), others=list(converted.values()))


def _converted(source: Fields, containers: Containers, returns: Returns, shared: Sequence[Object]) -> Object:
    source.drop("name")
    converted = containers.main(source, returns)
    mounts = [*shared, *converted.pop("volumeMounts", [])]
    return {**converted, "volumeMounts": [dict(each) for each in mounts]} if mounts else converted


def _waits(name: str, needs: Mapping[str, Sequence[str]]) -> bool:
    """Whether a container waits for others, or others for it."""
    return bool(needs[name]) or any(name in others for others in needs.values())


def _dependents(name: str, needs: Mapping[str, Sequence[str]]) -> set[str]:
    """Return the containers that wait for another one, directly or indirectly."""
    found: set[str] = set()
    while new := {other for other, before in needs.items() if {name, *found} & set(before)} - found:
        found |= new
    return found


def _is_row(ordered: Sequence[str], needs: Mapping[str, Sequence[str]]) -> bool:
    """Whether each container waits for the one before it."""
    return all(before in needs[name] for before, name in pairwise(ordered))


def _ordered(needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names in topological order, the main container as late as possible."""
    order: list[str] = []
    pending = dict(needs)
    while pending:
        ready = [name for name, of in pending.items() if not set(of) & pending.keys()] or list(pending)[:1]
        first = [name for name in ready if name != _MAIN] or ready
        for name in first:
            order.append(name)
            del pending[name]
    return order


_PATCH_KEYS: Final = ("name", "mountPath", "containerPort")
"""The fields by which Perdure merges the items of a list; otherwise a patch replaces the list."""
_MARK: Final = "perdure-tag-"
_MARKED: Final = re.compile(_MARK + r"(whole|part)-([0-9]+)-")
_NOTHING: Final = object()


class Computed(str):
    """A text with expressions of Perdure."""

    __slots__ = ()


def parsed(text: str, resolve: Resolve, known: Callable[[str], bool], as_value: Callable[[str], str]) -> Any:
    """Parse YAML with tags. Tags become expressions after the YAML is parsed.

    Args:
        text: The YAML.
        resolve: Translates references.
        known: Whether the text between braces is a tag; other text is kept.
        as_value: Returns the value of a text with expressions.

    Raises:
        yaml.YAMLError: The text is not valid YAML.
        UntranslatableError: A tag has no counterpart.
    """
    tags: list[str] = []

    def mark(found: re.Match[str]) -> str:
        if not known(found[1]):
            return found[0]
        tags.append(found[1])
        before, after = text[: found.start()], text[found.end() :]
        is_value = re.search(r"(?:[:-]|^)\s+\Z", before) and re.match(r"\s*(?:[\n,}]|\Z)", after)
        return f"{_MARK}{'whole' if is_value else 'part'}-{len(tags) - 1}-"

    return _unmarked(yaml.safe_load(TAG.sub(mark, text)), tags, resolve, as_value)


def _unmarked(value: Any, tags: list[str], resolve: Resolve, as_value: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        if any(_MARKED.search(str(key)) for key in value):
            raise UntranslatableError("the name of a field must not be computed; write it out")
        return {key: _unmarked(each, tags, resolve, as_value) for key, each in value.items()}
    if isinstance(value, list):
        return [_unmarked(each, tags, resolve, as_value) for each in value]
    if not isinstance(value, str):
        return value

    def expressed(found: re.Match[str]) -> str:
        text = tag(tags[int(found[2])], resolve)
        constant = re.fullmatch(r"'([^'\\]*)'", text)
        if constant:
            return constant[1]
        if found[1] == "whole" and text.startswith("input"):  # a plain scalar, which YAML may read as a number
            return "${" + f"type({text}) == string && {text}.matches('^-?[0-9]+$') ? int({text}) : {text}" + "}"
        return "${" + text + "}"

    return as_value(_MARKED.sub(expressed, value.replace("${", "$${")))


def computed(text: str) -> str:
    """Return a converted text for a field of a pod: as `Computed` if it has expressions, otherwise unescaped."""
    return Computed(text) if "${" in text.replace("$${", "") else text.replace("$${", "${")


def separated(spec: Object) -> tuple[Object, Object]:
    """Separate a pod spec into its constant fields, and a `podSpecPatch` with the computed ones."""
    constant, patch = _separated(spec)
    return ({} if constant is _NOTHING else constant), ({} if patch is _NOTHING else patch)


def _separated(value: Any) -> tuple[Any, Any]:
    """Return the constant part and the patch; `_NOTHING` for one that is empty."""
    if isinstance(value, Computed):
        return _NOTHING, str(value)
    if isinstance(value, dict):
        parts = {key: _separated(each) for key, each in value.items()}
        patch = {key: part for key, (_, part) in parts.items() if part is not _NOTHING}
        constant = {key: part for key, (part, _) in parts.items() if part is not _NOTHING}
        return (constant if constant or not patch else _NOTHING), (patch or _NOTHING)
    if isinstance(value, list) and any(map(_has_computed, value)):
        key = _key(value)
        if key is None:
            return _NOTHING, escaped(value)
        items = [(each[key], *_separated(each)) for each in value]
        patches = [{key: name, **patch} for name, _, patch in items if patch is not _NOTHING]
        return [constant for _, constant, _ in items], patches
    return value, _NOTHING


def _has_computed(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_computed, value.values()))
    return any(map(_has_computed, value)) if isinstance(value, list) else isinstance(value, Computed)


def _key(items: Iterable[Any]) -> str | None:
    """Return the first field that all items have, if its values are constant and unique."""
    items = list(items)
    if not all(isinstance(each, dict) for each in items):
        return None
    key = next((key for key in _PATCH_KEYS if all(key in each for each in items)), None)
    values = [each[key] for each in items] if key else []
    return key if len(set(values)) == len(items) and not any(map(_has_computed, values)) else None


def escaped(value: Any) -> Any:
    """Return a value for a place where all texts are evaluated: texts that are not `Computed` are escaped."""
    if isinstance(value, Computed):
        return str(value)
    if isinstance(value, str):
        return value.replace("${", "$${")
    if isinstance(value, list):
        return [escaped(each) for each in value]
    return {key: escaped(each) for key, each in value.items()} if isinstance(value, dict) else value


_MERGE_KEYS: Final = {
    **dict.fromkeys(("containers", "initContainers", "volumes", "env", "imagePullSecrets"), "name"),
    "volumeMounts": "mountPath",
    "ports": "containerPort",
}
"""The key by which Kubernetes merges the entries of a list; other lists are replaced."""


def strategic(target: Object, patch: Any) -> Object:
    """Apply a patch to a pod spec.

    Raises:
        ValueError: The patch is not a map.
    """
    if not isinstance(patch, dict):
        raise ValueError("it is not a map")  # noqa: TRY004 (of the caller's text, not of its type)
    return _merged(target, patch)


def _merged(target: Object, patch: Object) -> Object:
    merged = dict(target)
    for key, value in patch.items():
        before = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(before, dict):
            merged[key] = _merged(before, value)
        elif isinstance(value, list) and isinstance(before, list) and key in _MERGE_KEYS:
            merged[key] = _by_key(before, value, _MERGE_KEYS[key])
        else:
            merged[key] = value
    return merged


def _by_key(target: list[Any], patch: list[Any], key: str) -> list[Any]:
    merged = list(target)
    for each in patch:
        found = next(
            (i for i, one in enumerate(merged) if isinstance(one, dict) and one.get(key) == each.get(key)), None
        )
        if found is None:
            merged.append(each)
        else:
            merged[found] = _merged(merged[found], each)
    return merged
