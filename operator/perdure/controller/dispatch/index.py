"""The index of the objects that this process knows and works on, filled by watches, lists, and its own writes."""

from dataclasses import dataclass, field

from perdure.controller.directory import Directory
from perdure.controller.runs.run import Run
from perdure.controller.schedules.schedule import ReconciledSchedule
from perdure.kube import client as kube


@dataclass(slots=True)
class Index:
    """The known objects. The code that adds to it wakes the affected keys."""

    directory: Directory = field(default_factory=Directory)
    """The entries of all runs."""
    runs: dict[str, Run] = field(default_factory=dict)
    """The runs with pending work, by UID."""
    schedules: dict[str, ReconciledSchedule] = field(default_factory=dict)
    """The Schedules by UID."""
    _versions: dict[str, str] = field(default_factory=dict)
    """The last reported versions by UID, except for finished and hibernated runs, whose versions are in the directory."""

    def update(self, obj: kube.Object) -> None:
        """Record the version of an object, so that a resync does not process it again.

        An event may arrive after that of a later version: the watch passes on what this process or another member wrote without
        kopf, whose handlers run later. The version of a run that is left to the directory counts, too.
        """
        meta = obj["metadata"]
        if not kube.older(meta["resourceVersion"], self.version(meta["uid"]) or ""):
            self._versions[meta["uid"]] = meta["resourceVersion"]

    def delete(self, uid: str) -> None:
        """Record that an object was deleted."""
        self._versions.pop(uid, None)

    def leave_to_directory(self, uid: str) -> None:
        """Record that a run is finished or hibernated, so that its version is in the directory."""
        self._versions.pop(uid, None)

    def version(self, uid: str) -> str | None:
        """The last reported version of an object."""
        known = self._versions.get(uid)
        return known if known is not None else self.directory.settled_version(uid)

    def is_reported(self, uid: str) -> bool:
        """Whether a watch or a list has shown an object; False if it was only created here."""
        return uid in self._versions

    def uids(self) -> set[str]:
        """The UIDs of all runs and Schedules."""
        return {*self.runs, *self.schedules, *self.directory.uids()}
