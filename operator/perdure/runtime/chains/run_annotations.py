"""The annotations that tie a run to others."""

from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from perdure.api import labels
from perdure.api.lenient import read_annotation
from perdure.api.policies import ParentClosePolicy
from perdure.api.stored import StoredStruct
from perdure.engine.failures import Failure
from perdure.engine.starts import CarriedSignal, ParentReference, StartExtras
from perdure.engine.versioning import VersioningOverride
from perdure.runtime.attempts import KubeObject


class Parent(ParentReference, frozen=True, kw_only=True):
    """The parent of a child, in an annotation of the child."""

    parent_close_policy: ParentClosePolicy = ParentClosePolicy.TERMINATE
    depth: int = 1
    """Number of ancestors of the child; 1 if an older version, which did not record it, started the child."""


class Continuation(StoredStruct, frozen=True, kw_only=True):
    """The previous run of a chain, in an annotation of the next one."""

    name: str
    """Name of the previous WorkflowRun."""
    run_id: str
    first_run_id: str
    attempt: int = 1
    retries_since: datetime | None = None
    """Start time of the first run in a series of retries."""
    expiration: datetime | None = None
    """When the execution timeout of the whole chain ends."""
    backoff: timedelta | None = None
    due: datetime | None = None
    """When the first decision of a run of a cron schedule is due, even if the run itself was created late."""
    failure: Failure | None = None
    """Why the previous run failed, if this one retries it or follows it by a cron schedule."""
    signals: tuple[CarriedSignal, ...] = ()
    applied: tuple[str, ...] = msgspec.field(default=(), name="heeded")  # wordlist: the name in stored annotations
    """IDs of the last applied requests: a client that got no response may send one again to this run, without effect."""


class Ancestor(StoredStruct, frozen=True, kw_only=True):
    """A run from whose history another run copied its first events."""

    name: str
    """Name of the WorkflowRun."""
    run_id: str
    event_id: int
    """The last event that the other run has taken over."""


class ResetOrigin(StoredStruct, frozen=True, kw_only=True):
    """The run that was reset, in an annotation of the run that the reset created."""

    request_id: str
    """ID of the request: the UID of an Operation."""
    lineage: Annotated[tuple[Ancestor, ...], msgspec.Meta(min_length=1)]
    """The runs from which the history was copied; the last one is the run that was reset."""
    reapply_signals: bool = True
    reapply_updates: bool = True
    kept: tuple[int, ...] = ()
    """For a retry: the later ActivityTaskCompleted events whose results are kept."""
    overrides: tuple[VersioningOverride | None, ...] = ()
    """The changes of the versioning override that follow the reset, each before the next; None removes it."""
    reason: str = ""
    identity: str = ""
    principal: str = ""

    @property
    def base(self) -> Ancestor:
        """The run that was reset."""
        return self.lineage[-1]

    @property
    def original(self) -> Ancestor:
        """The run that recorded the start: a reset does not change `run.name` and `run.runId`."""
        return self.lineage[0]

    def recorder(self, event_id: int) -> Ancestor | None:
        """The earlier run that recorded an event; None if this run did."""
        found = None
        for ancestor in reversed(self.lineage):
            if event_id > ancestor.event_id:
                break
            found = ancestor
        return found

    def origin(self, event_id: int) -> str | None:
        """UID of the run that recorded an event; None if this run did."""
        found = self.recorder(event_id)
        return found.run_id if found is not None else None


def parent_of(run: KubeObject) -> Parent | None:
    """The parent of a run; None if it has none, or if the annotation is not valid."""
    return read_annotation(run, labels.PARENT_ANNOTATION, Parent)


def depth_of(run: KubeObject) -> int:
    """Number of ancestors of a run. All runs of a chain have the same number."""
    parent = parent_of(run)
    return parent.depth if parent is not None else 0


def continuation_of(run: KubeObject) -> Continuation | None:
    """Return the previous run of a chain, which a run continues or retries; None for the first run of a chain."""
    return read_annotation(run, labels.CONTINUES_ANNOTATION, Continuation)


def extras_of(run: KubeObject) -> StartExtras:
    """The options of the Temporal client that started the run; empty if another client did."""
    return read_annotation(run, labels.START_ANNOTATION, StartExtras) or StartExtras()


def created_by(obj: KubeObject) -> str:
    """The user that created a WorkflowRun or an Operation, authenticated by the API server; empty if it is not known."""
    return str((obj["metadata"].get("annotations") or {}).get(labels.CREATED_BY_ANNOTATION, ""))


def reset_of(run: KubeObject) -> ResetOrigin | None:
    """Return the run that was reset to create a run; None if it was not created by a reset."""
    return read_annotation(run, labels.RESET_ANNOTATION, ResetOrigin)


def first_run_id(run: KubeObject) -> str:
    """UID of the first run of a chain, which continuations, retries and resets extend."""
    before, reset = continuation_of(run), reset_of(run)
    if before is not None:
        return before.first_run_id
    return reset.lineage[0].run_id if reset is not None else str(run["metadata"]["uid"])
