"""The keys in the queue of the operator: one for each piece of work.

Each has its namespace, for fairness, and `sharded_by`: together with the namespace, this name selects the shard, and so the
member of a fleet that does the work. The runs of a workflow ID are in one shard, together with everything that belongs to them.
"""

from dataclasses import dataclass, field

from perdure.kube import client as kube


@dataclass(frozen=True, slots=True)
class RunKey:
    """Reconcile a WorkflowRun."""

    namespace: str
    uid: str
    sharded_by: str = field(compare=False)
    """Its workflow ID."""


@dataclass(frozen=True, slots=True)
class ScheduleKey:
    """Reconcile a Schedule."""

    namespace: str
    uid: str
    sharded_by: str = field(compare=False)
    """Its name."""


@dataclass(frozen=True, slots=True)
class OrphanKey:
    """Release a pod of a run that this process does not know."""

    namespace: str
    name: str
    uid: str
    sharded_by: str = field(compare=False)
    """The workflow ID of its run, or the UID of an unknown run."""


@dataclass(frozen=True, slots=True)
class ExpiryKey:
    """Remove an expired finished run or answered Operation."""

    namespace: str
    name: str
    uid: str
    sharded_by: str = field(compare=False)
    """The workflow ID of the run; the name of the Operation."""

    @classmethod
    def of(cls, obj: kube.Object) -> "ExpiryKey":
        """The key of an object."""
        meta = obj["metadata"]
        return cls(meta["namespace"], meta["name"], meta["uid"], sharding_name(obj))


@dataclass(frozen=True, slots=True)
class RetentionKey:
    """Remove the oldest finished runs of a namespace that has too many."""

    namespace: str

    @property
    def sharded_by(self) -> str:
        """Empty, because one member does it for the whole namespace."""
        return ""


@dataclass(frozen=True, slots=True)
class _NamedKey:
    """Work on an object that is sharded by its name."""

    namespace: str
    name: str

    @property
    def sharded_by(self) -> str:
        """Its name."""
        return self.name


@dataclass(frozen=True, slots=True)
class WorkflowKey(_NamedKey):
    """Check a Workflow."""


@dataclass(frozen=True, slots=True)
class PolicyKey(_NamedKey):
    """Check a RetryPolicy, and record the state of its circuit."""


@dataclass(frozen=True, slots=True)
class LimitKey(_NamedKey):
    """Check a WorkflowLimit, and release it from runs that have ended."""


@dataclass(frozen=True, slots=True)
class WebhookKey(_NamedKey):
    """Check a Webhook."""


@dataclass(frozen=True, slots=True)
class DeadLetterKey(_NamedKey):
    """Record the outcome of a DeadLetter's re-drive."""


Key = (
    RunKey
    | ScheduleKey
    | OrphanKey
    | ExpiryKey
    | RetentionKey
    | WorkflowKey
    | PolicyKey
    | LimitKey
    | WebhookKey
    | DeadLetterKey
)


def sharding_name(obj: kube.Object) -> str:
    """The name that selects the shard of an object: the workflow ID of a run, the name of any other object."""
    return str(obj["spec"].get("workflowId") or obj["metadata"]["name"])
