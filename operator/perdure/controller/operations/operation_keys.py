"""The keys in the queue of Operations: one for each piece of work."""

from dataclasses import dataclass

from perdure.controller.queue.keys import ExpiryKey
from perdure.kube import client as kube


@dataclass(frozen=True, slots=True)
class TargetKey:
    """Take up the pending Operations of a target, in order."""

    namespace: str
    kind: str
    field: str
    """Of `spec.target`: ``name`` or ``workflowId``."""
    value: str

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


@dataclass(frozen=True, slots=True)
class ForgetKey:
    """Let a run forget an Operation that was answered."""

    namespace: str
    run_id: str
    uid: str


Key = TargetKey | OperationKey | ForgetKey | ExpiryKey
