"""The keys in the queue of Operations: one for each piece of work."""

from dataclasses import dataclass, field

from perdure.controller.queue.keys import ExpiryKey
from perdure.kube import client as kube


@dataclass(frozen=True, slots=True)
class TargetKey:
    """Process the pending Operations of a target in order."""

    namespace: str
    kind: str
    field: str
    """The field of `spec.target`: ``name`` or ``workflowId``."""
    value: str

    @property
    def sharded_by(self) -> str:
        """The workflow ID or name, which selects the shard of the target, unless a run's name differs from its workflow ID."""
        return self.value

    @classmethod
    def of(cls, obj: kube.Object) -> "TargetKey":
        """The key of the target of an Operation."""
        target = obj["spec"]["target"]
        field = "name" if "name" in target else "workflowId"
        return cls(obj["metadata"]["namespace"], target["kind"], field, target[field])


@dataclass(frozen=True, slots=True)
class OperationKey:
    """Reconcile an Operation whose request was answered."""

    namespace: str
    uid: str
    sharded_by: str = field(compare=False)
    """The same as for its target."""


@dataclass(frozen=True, slots=True)
class ForgetKey:
    """Let a run drop an answered Operation."""

    namespace: str
    run_id: str
    uid: str


Key = TargetKey | OperationKey | ForgetKey | ExpiryKey
