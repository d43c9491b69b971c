"""Strategic merge patches of pods, for `podSpecPatch`."""

from typing import Any, Final

from perdure.importing.field_reader import Object

_KEYS: Final = {
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
        elif isinstance(value, list) and isinstance(before, list) and key in _KEYS:
            made[key] = _by_key(before, value, _KEYS[key])
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
