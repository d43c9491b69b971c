"""The state versions of this process: what it reads, and what it writes at the moment."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from perdure import __version__
from perdure.api.labels import STATE_VERSION_ANNOTATION
from perdure.api.state_versions import NEWEST, OLDEST, stamped, unreadable, version_in, version_of


class StateVersions:
    """The state versions of one process. An upgrade changes what it writes (`upgrades.py`)."""

    def __init__(self, reads: int = NEWEST, writes: int | None = None, release: str = __version__) -> None:
        """Create them.

        Args:
            reads: The newest version that the process reads.
            writes: The version that it writes; None: the newest one.
            release: The release of the process.
        """
        self.reads = reads
        self.writes = reads if writes is None else writes
        self.release = release
        self.latest = release
        """The latest release that has worked here, as far as this process knows."""

    @property
    def able(self) -> str:
        """The releases that can read what this process cannot."""
        return f"a version after {self.release}" if self.latest == self.release else f"version {self.latest} or later"

    def unreadable(self, part: Mapping[str, Any]) -> str:
        """Say why this process cannot read a status, or the spec of an object that only operators write; empty if it can."""
        return unreadable(version_of(part), self.reads)

    def stamp(
        self, part: Mapping[str, Any], before: Mapping[str, Any] | None = None, needed: int = OLDEST
    ) -> dict[str, Any]:
        """A status or a spec with the version in which it is stored.

        An object keeps the version that it has: a lower one might have no place for what it contains.

        Args:
            part: The status or the spec.
            before: The stored one; None if there is none.
            needed: The lowest version that knows everything in the object.
        """
        return stamped(part, max(self.writes, version_of(before or {}), needed))

    def stamp_spec(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """A new object of a kind that only operators write, with the version in its spec."""
        return {**obj, "spec": self.stamp(obj["spec"])}

    def unreadable_settings(self, meta: Mapping[str, Any]) -> str:
        """Say why this process cannot read a ConfigMap with settings; empty if it can. `meta`: its metadata."""
        return unreadable(_annotated(meta), self.reads)

    def annotate(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        """The metadata of an object of Kubernetes, such as a ConfigMap or a Lease, with the version of its content."""
        version = max(self.writes, _annotated(meta))
        if version == OLDEST:
            return dict(meta)
        return {**meta, "annotations": {**(meta.get("annotations") or {}), STATE_VERSION_ANNOTATION: str(version)}}


def _annotated(meta: Mapping[str, Any]) -> int:
    return version_in((meta.get("annotations") or {}).get(STATE_VERSION_ANNOTATION))


process: ContextVar[StateVersions] = ContextVar("state_versions", default=StateVersions())  # noqa: B039 - of the process
"""The state versions of the process in the current context and its tasks. A simulation has several processes."""


def state_versions() -> StateVersions:
    """The state versions of this process."""
    return process.get()
