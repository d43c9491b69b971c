"""What this process knows of the cluster, and what it works on: filled by watches, lists and its own writes."""

from dataclasses import dataclass, field

from perdure.controller.directory import Directory
from perdure.controller.runs.run import Run
from perdure.controller.schedules.reconciled_schedule import ReconciledSchedule
from perdure.kube import client as kube


@dataclass(slots=True)
class Index:
    """What is known. The code that adds to it wakes the keys that are affected."""

    directory: Directory = field(default_factory=Directory)
    """Every run that there is, with what others need to know of it."""
    runs: dict[str, Run] = field(default_factory=dict)
    """By UID, the runs that something is left to do for."""
    schedules: dict[str, ReconciledSchedule] = field(default_factory=dict)
    """By UID."""
    _versions: dict[str, str] = field(default_factory=dict)
    """By UID. The directory knows those of finished runs."""

    def see(self, obj: kube.Object, *, deleted: bool) -> None:
        """Note the version of an object that was seen, so that a sweep does not hand it on again."""
        uid, version = obj["metadata"]["uid"], obj["metadata"]["resourceVersion"]
        if deleted:
            self._versions.pop(uid, None)
        elif not kube.older(version, self._versions.get(uid, "")):
            self._versions[uid] = version

    def leave_to_directory(self, uid: str) -> None:
        """A run is finished: the directory is enough to know its version."""
        self._versions.pop(uid, None)

    def version(self, uid: str) -> str | None:
        """The version of an object that was seen last."""
        seen = self._versions.get(uid)
        return seen if seen is not None else self.directory.closed_version(uid)

    def was_seen(self, uid: str) -> bool:
        """Whether an object that is worked on was shown by a watch or a list, not only made here."""
        return uid in self._versions

    def uids(self) -> set[str]:
        """All runs and Schedules."""
        return {*self.runs, *self.schedules, *self.directory.uids()}
