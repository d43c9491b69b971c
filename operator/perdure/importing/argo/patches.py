"""The `podSpecPatch` of pods: fields with tags, which Perdure only evaluates there, and the strategic merge of Argo's patches."""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import yaml

from perdure.importing.expressions import TAG, Resolve, UntranslatableError, tag
from perdure.importing.reader import Object

_PATCH_KEYS: Final = ("name", "mountPath", "containerPort")
"""The fields by which Perdure merges the items of a list; otherwise a patch replaces the list."""
_MARK: Final = "perdure-tag-"
_MARKED: Final = re.compile(_MARK + r"(whole|part)-([0-9]+)-")
_NOTHING: Final = object()


class Computed(str):
    """A text with expressions of Perdure."""

    __slots__ = ()


def parsed(text: str, resolve: Resolve, known: Callable[[str], bool], made: Callable[[str], str]) -> Any:
    """Parse YAML with tags. Tags become expressions after the YAML is parsed.

    Args:
        text: The YAML.
        resolve: Translates references.
        known: Whether the text between braces is a tag; other text is kept.
        made: Returns the value of a text with expressions.

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
        whole = re.search(r"(?:[:-]|^)\s+\Z", before) and re.match(r"\s*(?:[\n,}]|\Z)", after)
        return f"{_MARK}{'whole' if whole else 'part'}-{len(tags) - 1}-"

    return _unmarked(yaml.safe_load(TAG.sub(mark, text)), tags, resolve, made)


def _unmarked(value: Any, tags: list[str], resolve: Resolve, made: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        if any(_MARKED.search(str(key)) for key in value):
            raise UntranslatableError("the name of a field must not be computed; write it out")
        return {key: _unmarked(each, tags, resolve, made) for key, each in value.items()}
    if isinstance(value, list):
        return [_unmarked(each, tags, resolve, made) for each in value]
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

    return made(_MARKED.sub(expressed, value.replace("${", "$${")))


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
    made = dict(target)
    for key, value in patch.items():
        before = made.get(key)
        if value is None:
            made.pop(key, None)
        elif isinstance(value, dict) and isinstance(before, dict):
            made[key] = _merged(before, value)
        elif isinstance(value, list) and isinstance(before, list) and key in _MERGE_KEYS:
            made[key] = _by_key(before, value, _MERGE_KEYS[key])
        else:
            made[key] = value
    return made


def _by_key(target: list[Any], patch: list[Any], key: str) -> list[Any]:
    made = list(target)
    for each in patch:
        found = next((i for i, one in enumerate(made) if isinstance(one, dict) and one.get(key) == each.get(key)), None)
        if found is None:
            made.append(each)
        else:
            made[found] = _merged(made[found], each)
    return made
