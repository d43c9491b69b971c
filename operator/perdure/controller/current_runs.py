"""Which of the runs of a workflow ID is meant by the ID: at most one is open, and the last one may have a successor."""

from typing import Protocol

from perdure.api.phases import RunKind
from perdure.controller.run_entries import Entry, Standing
from perdure.controller.workflow_id_claims import WorkflowIdClaims


class KnownRuns(Protocol):
    """Finds the runs that this operator knows."""

    def named(self, namespace: str, name: str) -> Entry | None:
        """The run with a name."""
        ...

    def runs_of(self, namespace: str, workflow_id: str, *, kind: RunKind) -> list[Entry]:
        """The runs of a workflow ID, in no particular order."""
        ...


class CurrentRuns:
    """The current runs of workflow IDs. An ID of another kind is an activity ID or an operation ID."""

    def __init__(self, known: KnownRuns, claims: WorkflowIdClaims) -> None:
        self._known = known
        self._claims = claims

    def open_run(self, namespace: str, workflow_id: str, *, kind: RunKind = RunKind.WORKFLOW) -> Entry | None:
        """The open run of a workflow ID, or the next one to open."""
        found = self._known.runs_of(namespace, workflow_id, kind=kind)
        open_ = [entry for entry in found if entry.standing is Standing.OPEN]
        waiting = sorted((entry for entry in found if entry.standing is Standing.WAITING), key=self._claims.order)
        return next(iter((*open_, *waiting)), None)

    def newest(self, namespace: str, workflow_id: str, *, kind: RunKind = RunKind.WORKFLOW) -> Entry | None:
        """The open run of a workflow ID or, if there is none, the one that was open last."""
        found = self.open_run(namespace, workflow_id, kind=kind)
        if found is not None:
            return found
        return max(
            (e for e in self._known.runs_of(namespace, workflow_id, kind=kind) if not e.refused),
            key=lambda e: (e.closed, e.created, e.uid),
            default=None,
        )

    def gap(self, namespace: str, workflow_id: str) -> Entry | None:
        """The closed run of a workflow whose next run does not exist yet: the workflow is open, but no run is."""
        known = self._known.runs_of(namespace, workflow_id, kind=RunKind.WORKFLOW)
        closed = (entry for entry in known if entry.successor)
        return next((entry for entry in closed if self._known.named(namespace, entry.successor) is None), None)

    def continues(self, entry: Entry) -> bool:
        """Whether another run of the workflow ID exists or will exist."""
        following = self.open_run(entry.namespace, entry.workflow_id, kind=entry.kind)
        known = self._known.runs_of(entry.namespace, entry.workflow_id, kind=entry.kind)
        return any(each.successor for each in known) or (following is not None and following.uid != entry.uid)
