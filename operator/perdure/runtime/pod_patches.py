"""Changes to the spec of a pod that a user asks for: a merge as `kubectl patch` does it, without a schema of Kubernetes."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

_KEYS: Final = ("name", "mountPath", "containerPort", "topologyKey", "key", "ip")
"""The fields that identify the items of lists: the first one that all items have."""


def patched(given: Any, patch: Any) -> Any:
    """A value with a patch applied: objects are merged, lists of objects are merged by their key, everything else is replaced.

    Args:
        given: The value; not changed.
        patch: The patch; null removes a field.
    """
    if isinstance(given, Mapping) and isinstance(patch, Mapping):
        merged = {**given, **{name: patched(given.get(name), value) for name, value in patch.items()}}
        return {name: value for name, value in merged.items() if name not in patch or patch[name] is not None}
    if isinstance(given, list) and isinstance(patch, list):
        key = _key([*given, *patch])
        return _merged(given, patch, key) if key else patch
    return patch


def _key(items: Sequence[Any]) -> str | None:
    if not all(isinstance(item, Mapping) for item in items):
        return None
    return next((key for key in _KEYS if all(item.get(key) is not None for item in items)), None)


def _merged(given: Sequence[Mapping[str, Any]], patch: Sequence[Mapping[str, Any]], key: str) -> list[Any]:
    """The items in their order, each with its patch, and then the new ones."""
    patches = {item[key]: item for item in patch}
    known = {item[key] for item in given}
    changed = [patched(item, patches[item[key]]) if item[key] in patches else item for item in given]
    return [*changed, *(item for name, item in patches.items() if name not in known)]
