"""Invariants of revisions: what a run refers to exists, has the right content, and is not deleted."""

from collections.abc import Callable

from perdure.runtime import revisions
from perdure.runtime.revisions import Reference
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.store import ObjectKey, Write


class RevisionChecks:
    """Checks the references of runs, and the removal of revisions, by operators."""

    def __init__(self, server: ApiServer, report: Callable[[Write, str], None]) -> None:
        """`report` takes a write and what is wrong with it."""
        self.deleted = 0
        """How many revisions operators have deleted."""
        self._server = server
        self._report = report

    def check_run(self, write: Write) -> None:
        """A run that is written refers to a revision that exists, always to the same one."""
        reference = Reference.of(write.after.get("status") or {})
        before = Reference.of((write.before or {}).get("status") or {})
        if before is not None and reference != before:
            self._report(write, f"refers to {reference}, and before to {before}")
        if reference is None or before is not None:
            return
        found = self._server.objects.get(ObjectKey("workflowrevisions", write.key.namespace, reference.name))
        if found is None:
            self._report(write, f"refers to the revision {reference.name}, which does not exist")
        elif revisions.fault(found) or found["spec"]["hash"] != reference.hash:
            self._report(write, f"refers to the revision {reference.name}, which has another content")

    def check_revision(self, write: Write) -> None:
        """No revision is deleted while a run refers to it."""
        if not write.delete_requested and write.type != "DELETED":
            return
        self.deleted += write.type == "DELETED"
        for run in self._server.of("workflowruns"):
            reference = Reference.of(run.get("status") or {})
            if reference is not None and reference.name == write.key.name:
                self._report(write, f"is deleted while the run {run['metadata']['name']} refers to it")
