"""The index of the objects that this process knows and works on: filled by watches, lists, and its own writes."""

from dataclasses import dataclass, field

from perdure.controller.directory import Directory
from perdure.controller.runs.run import Run
from perdure.controller.schedules.reconciled_schedule import ReconciledSchedule
from perdure.kube import client as kube


@dataclass(slots=True)
class Index:
    """The known objects. The code that adds to it wakes the affected keys."""

    directory: Directory = field(default_factory=Directory)
    """The entries of all runs."""
    runs: dict[str, Run] = field(default_factory=dict)
    """By UID, the runs with pending work."""
    schedules: dict[str, ReconciledSchedule] = field(default_factory=dict)
    """By UID."""
    _versions: dict[str, str] = field(default_factory=dict)
    """By UID. The directory knows those of finished runs."""

    def see(self, obj: kube.Object, *, deleted: bool) -> None:
        """Note the version of an object, so that a resync does not process it again."""
        uid, version = obj["metadata"]["uid"], obj["metadata"]["resourceVersion"]
        if deleted:
            self._versions.pop(uid, None)
        elif not kube.older(version, self._versions.get(uid, "")):
            self._versions[uid] = version

    def leave_to_directory(self, uid: str) -> None:
        """Note that a run is finished: the directory knows its version."""
        self._versions.pop(uid, None)

    def version(self, uid: str) -> str | None:
        """The version of an object that was seen last."""
        seen = self._versions.get(uid)
        return seen if seen is not None else self.directory.closed_version(uid)

    def was_seen(self, uid: str) -> bool:
        """Whether a watch or a list has shown an object, which otherwise was only created here."""
        return uid in self._versions

    def uids(self) -> set[str]:
        """All runs and Schedules."""
        return {*self.runs, *self.schedules, *self.directory.uids()}
