"""UIDs of runs by a key within a namespace, in little memory."""

from collections.abc import Collection


class UidIndex:
    """UIDs of runs by namespace and key. Most keys have one run, for which a set would cost more memory than everything else."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, str | set[str]]] = {}

    def add(self, namespace: str, key: str, uid: str) -> None:
        """Add a run to a key."""
        keys = self._found.setdefault(namespace, {})
        known = keys.get(key)
        if known is None:
            keys[key] = uid
        elif isinstance(known, set):
            known.add(uid)
        elif known != uid:
            keys[key] = {known, uid}

    def discard(self, namespace: str, key: str, uid: str) -> None:
        """Remove a run from a key, if it is there."""
        keys = self._found.get(namespace, {})
        known = keys.get(key)
        if isinstance(known, set):
            known.discard(uid)
        if known == uid or not known:
            keys.pop(key, None)
            if not keys:
                self._found.pop(namespace, None)

    def get(self, namespace: str, key: str) -> Collection[str]:
        """The UIDs of the runs of a key."""
        known = self._found.get(namespace, {}).get(key, ())
        return (known,) if isinstance(known, str) else known
