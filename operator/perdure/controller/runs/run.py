"""One run: its watch events and requests between reconciliations."""

from collections.abc import Callable, Collection, Sequence

from perdure.controller.peers import Peers
from perdure.controller.reconcile.reconciler import Reconciler
from perdure.controller.runs.run_parts import RunParts
from perdure.controller.runs.run_reconciliation import RunReconciliation
from perdure.controller.tools import Tools
from perdure.engine import inputs
from perdure.engine.events import AnyEvent
from perdure.engine.inputs import Answer
from perdure.engine.recording import POLICY_NOT_FOUND
from perdure.engine.state import RunState
from perdure.kube import client as kube
from perdure.kube.clock import now


class Run:
    """A WorkflowRun in this process. `advance` is called by one task at a time; everything else at any time."""

    def __init__(self, tools: Tools, peers: Peers, obj: kube.Object, wake: Callable[[], None]) -> None:
        """`wake` requests a call of `advance`."""
        parts = RunParts.assemble(tools, peers, obj, wake)
        self.ref = parts.ref
        self._stored = parts.stored
        self._record = parts.stored.record
        self._attempts = parts.attempts
        self._outcomes = parts.outcomes
        self._inbox = parts.inbox
        self._reconciliation = RunReconciliation(tools, parts, lambda: tools.workers.follow(self))
        self.advance = Reconciler(self._reconciliation, self._record).advance
        """Reconcile the run; see there."""

    @property
    def state(self) -> RunState | None:
        """The state of the run, with everything recorded that must be; None before the run has started or was read."""
        return self._reconciliation.state

    @property
    def unrecorded(self) -> Sequence[AnyEvent]:
        """The history of a run whose start is not recorded yet; empty for any other."""
        start = self._reconciliation.start
        return start.transition.events if start is not None else ()

    def record_start(self) -> bool:
        """Let the next reconciliation record the start of the run; return whether it was unrecorded."""
        start = self._reconciliation.start
        if start is not None:
            start.due = min(start.due, now())
        return start is not None

    @property
    def object(self) -> kube.Object:
        """The last version of the run that was written or read here."""
        return self._record.latest()

    @property
    def status_size(self) -> int:
        """Size of the status that this process has committed last, in bytes; 0 if it has committed none."""
        return self._stored.size

    @property
    def gone(self) -> bool:
        """Whether the run was deleted."""
        return self._record.gone

    @property
    def done(self) -> bool:
        """Whether no work is pending: the run is closed or deleted, and its pods are released."""
        if self._record.gone:
            return self._reconciliation.released and self._attempts.settled and not self._inbox
        state = self.state
        if state is None or not state.closed or state.has_chores:
            return False
        return self._attempts.settled and self._outcomes.settled and not self._inbox

    @property
    def has_requests(self) -> bool:
        """Whether requests are pending."""
        return bool(self._inbox)

    @property
    def commits_everything(self) -> bool:
        """Whether to record the run after every reconciliation, because another process continues it; see RunReconciliation."""
        return self._reconciliation.commits_everything

    @commits_everything.setter
    def commits_everything(self, value: bool) -> None:
        if self._reconciliation.commits_everything and not value:
            self._reconciliation.state = (
                None  # resumed as after a restart: workflow tasks of the process before are void
            )
        self._reconciliation.commits_everything = value

    @property
    def waits_for_workflow(self) -> str | None:
        """The Workflow that this run cannot start without."""
        reference = self._record.object["spec"].get("workflow") or {}
        return reference.get("name") if self.state is None else None

    # Watch events

    def observe(self, obj: kube.Object) -> bool:
        """Process a watch event of the run; return whether it is new."""
        return self._record.observe(obj)

    def observe_deletion(self) -> None:
        """Record that the run was deleted. The garbage collector deletes its objects; their finalizers are removed here."""
        self._record.gone = True

    def observe_pod(self, pod: kube.Object) -> None:
        """Process a watch event of one of the run's pods."""
        self._attempts.observe(pod)

    def observe_pod_deletion(self, pod: kube.Object) -> None:
        """Process the deletion of one of the run's pods."""
        self._attempts.observe_deletion(pod)

    def observe_policies(self) -> bool:
        """Process a change of a RetryPolicy or its circuit breaker; return whether it affects the run."""
        state = self.state
        if state is None:
            return True
        again = state.task is not None and state.task.reason == POLICY_NOT_FOUND
        self._reconciliation.decide_again |= again
        return self._attempts.recheck_circuits() or self._reconciliation.decide_again

    def observe_child(self, uid: str) -> None:
        """Record that a child of this run has started or closed, or was deleted."""
        self._outcomes.observe_child(uid)

    # Requests

    def ask(self, request: inputs.Request, then: Callable[[Answer], None]) -> None:
        """Add a request; calls `then` with the answer once it is recorded."""
        self._inbox.put(request, then)

    def withdraw(self, request_id: str) -> None:
        """Withdraw a request, unless it was already recorded."""
        self._inbox.withdraw(request_id)

    def withdraw_all_of(self, askers: Collection[str]) -> None:
        """Withdraw the requests of some runs (their UIDs), unless the requests were already recorded."""
        for each in list(self._inbox):
            if each.request.request_id.partition("/")[0] in askers:
                self._inbox.withdraw(each.request.request_id)

    def forget(self, request_id: str) -> None:
        """Record that the caller has recorded the answer, so that the run can drop the request."""
        self._reconciliation.forgotten.append(inputs.RequestForgotten(request_id=request_id))
