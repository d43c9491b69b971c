"""The keys in the queue of the operator: one for each piece of work. Each has its namespace, for fairness."""

from dataclasses import dataclass

from perdure.kube import client as kube


@dataclass(frozen=True, slots=True)
class RunKey:
    """Reconcile a WorkflowRun."""

    namespace: str
    uid: str


@dataclass(frozen=True, slots=True)
class ScheduleKey:
    """Reconcile a Schedule."""

    namespace: str
    uid: str


@dataclass(frozen=True, slots=True)
class OrphanKey:
    """Release a pod whose run this process does not know."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ExpiryKey:
    """Remove a finished run whose time to live is over."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, obj: kube.Object) -> "ExpiryKey":
        """The key of an object."""
        meta = obj["metadata"]
        return cls(meta["namespace"], meta["name"], meta["uid"])


@dataclass(frozen=True, slots=True)
class RetentionKey:
    """Remove the oldest finished runs of a namespace that has too many."""

    namespace: str


@dataclass(frozen=True, slots=True)
class WorkflowKey:
    """Check a Workflow."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class PolicyKey:
    """Check a RetryPolicy, and record the state of its circuit."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class LetterKey:
    """Record the outcome of a DeadLetter's re-drive."""

    namespace: str
    name: str


Key = RunKey | ScheduleKey | OrphanKey | ExpiryKey | RetentionKey | WorkflowKey | PolicyKey | LetterKey
