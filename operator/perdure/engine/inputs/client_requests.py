"""Requests of clients and of other runs.

A request is recorded only once: the state keeps its ID until `RequestForgotten` reports that the client has the answer.
`identity` is the client's own name for itself, `principal` the user that the API server has authenticated; empty if unknown.
"""

from dataclasses import dataclass
from typing import Any, Final

from perdure.engine.activity_options import OpenActivityOptions
from perdure.engine.failures import Failure
from perdure.engine.starts import Callback, ExternalReference
from perdure.engine.versioning import VersioningOverride


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRequested:
    """A client sends a signal."""

    request_id: str
    signal_name: str
    input: Any = None
    identity: str = ""
    principal: str = ""
    header: Any = None
    external: ExternalReference | None = None
    """The run that sends the signal; None if another client sends it."""
    client_request_id: str = ""
    """The `request_id` that a client of Temporal's API chose; the event shows it."""
    links: Any = None
    """JSON of temporal.api.common.v1.Link, opaque."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """A client requests the cancellation of the run."""

    request_id: str
    reason: str = ""
    identity: str = ""
    principal: str = ""
    external: ExternalReference | None = None
    """The run that requests the cancellation; None if another client requests it."""
    stop: bool = False
    """Whether only `finally` runs, without other handlers."""
    links: Any = None
    """JSON of temporal.api.common.v1.Link, opaque."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateRequested:
    """A client terminates the run."""

    request_id: str
    reason: str = ""
    details: Any = None
    identity: str = ""
    principal: str = ""
    reset_run: str = ""
    """Name of the WorkflowRun that a reset creates; empty if this is not a reset."""
    reset_event_id: int = 0
    """The point of the reset: children and requests up to it belong to the new run."""
    links: Any = None
    """JSON of temporal.api.common.v1.Link, opaque."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested:
    """A client pauses the run, or one activity."""

    request_id: str
    activity_id: str | None = None
    reason: str = ""
    identity: str = ""
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpauseRequested:
    """A client unpauses the run, or one activity."""

    request_id: str
    activity_id: str | None = None
    reason: str = ""
    identity: str = ""
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityAnswered:
    """A client completes, fails or cancels an open activity in place of its pod."""

    request_id: str
    activity_id: str
    result: Any = None
    """Its output; for a cancellation, the details."""
    failure: Failure | None = None
    cancelled: bool = False
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityReset:
    """A client resets an activity: the next attempt starts now and counts as the first."""

    request_id: str
    activity_id: str
    heartbeat: bool = False
    """Whether the heartbeat details are also removed."""
    keep_paused: bool = False
    restore: bool = False
    """Whether to restore the options from the workflow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionsChanged:
    """A client changes the options of an open activity that workers run."""

    request_id: str
    activity_id: str
    options: OpenActivityOptions | None
    """All options; None: the options from the workflow again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbacksAttached:
    """A client that tried to start the workflow attaches to the open run, or to one of its updates, and waits for its end."""

    request_id: str
    callbacks: tuple[Callback, ...]
    update_id: str = ""
    """The update to wait for; empty: the end of the run."""
    identity: str = ""
    principal: str = ""
    links: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideChanged:
    """A client sets the versioning override of a run, or removes it."""

    request_id: str
    override: VersioningOverride | None
    identity: str = ""
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestForgotten:
    """The client has the answer to its request, and will not send the request again."""

    request_id: str


OPERATOR: Final = "perdure.dev/operator"
"""Identity of the operator when it terminates a run without a request for that run."""
