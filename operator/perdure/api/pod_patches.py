"""Patches of pods: merged like strategic merge patches, but without Kubernetes' schema."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

_KEYS: Final = ("name", "mountPath", "containerPort", "topologyKey", "key", "ip")
"""The fields that can identify the items of a list; the first one that all items have is used."""


def patched(base: Any, patch: Any) -> Any:
    """Return a value with a patch applied. Objects are merged, lists of objects are merged by key, other values are replaced.

    Args:
        base: The value; not changed.
        patch: The patch; null removes a field.
    """
    if isinstance(base, Mapping) and isinstance(patch, Mapping):
        merged = {**base, **{name: patched(base.get(name), value) for name, value in patch.items()}}
        return {name: value for name, value in merged.items() if name not in patch or patch[name] is not None}
    if isinstance(base, list) and isinstance(patch, list):
        key = _key([*base, *patch])
        return _merged(base, patch, key) if key else patch
    return patch


def _key(items: Sequence[Any]) -> str | None:
    if not all(isinstance(item, Mapping) for item in items):
        return None
    return next((key for key in _KEYS if all(item.get(key) is not None for item in items)), None)


def _merged(items: Sequence[Mapping[str, Any]], patch: Sequence[Mapping[str, Any]], key: str) -> list[Any]:
    """Return the items in their order, each with its patch applied, followed by the new items."""
    patches = {item[key]: item for item in patch}
    known = {item[key] for item in items}
    changed = [patched(item, patches[item[key]]) if item[key] in patches else item for item in items]
    return [*changed, *(item for name, item in patches.items() if name not in known)]
