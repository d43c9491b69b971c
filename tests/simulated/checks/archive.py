"""Invariants of the archive: every finished run is in the cluster, or in the archive, exactly once, and as it was at last."""

from collections.abc import Callable

from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.store import Object, Write
from simulated.archive import SimulatedArchive
from simulated.checks.run_facts import is_closed, is_refused


class ArchiveChecks:
    """Checks the removal of finished runs against the archive, and that at the end none is missing."""

    def __init__(self, server: ApiServer, archive: SimulatedArchive, fail: Callable[[str], None]) -> None:
        self.removed = 0
        """How many archived runs operators have removed."""
        self._server = server
        self._archive = archive
        self._fail = fail
        self._finished: dict[str, str] = {}
        """The names of finished runs by UID, without those that users have deleted."""
        server.observers.append(self._observe)

    def _observe(self, write: Write) -> None:
        if write.key.plural != "workflowruns":
            return
        run, status = write.after, write.after.get("status") or {}
        uid = run["metadata"]["uid"]
        if write.type == "DELETED" and write.actor == "user":
            self._finished.pop(uid, None)
        elif is_closed(run) and not is_refused(status):
            self._finished[uid] = write.key.name
            if write.type == "DELETED":
                self.removed += 1
                self._check_removed(write.before or run)

    def _check_removed(self, run: Object) -> None:
        name, version = run["metadata"]["name"], run["metadata"]["resourceVersion"]
        stored = [each.version for each in self._archive.of(run["metadata"]["uid"])]
        if stored != [version]:
            self._fail(f"run {name} is removed in version {version}, and the archive has {stored or 'none'}")

    def finish(self) -> None:
        """Check that every finished run is in the cluster or in the archive, exactly once, with its whole history."""
        if not self.removed:
            self._fail("no archived run was removed")
        here = {run["metadata"]["uid"] for run in self._server.of("workflowruns")}
        for uid, name in self._finished.items():
            rows = self._archive.of(uid)
            if len(rows) != 1:
                self._fail(
                    f"run {name} is in the archive {len(rows)} times, and {'' if uid in here else 'not '}in the cluster"
                )
                continue
            history = rows[0].run["status"]["history"]["events"]
            if [event["eventId"] for event in history] != list(range(1, len(history) + 1)) or not history:
                self._fail(f"run {name} is archived with a history that has gaps")
