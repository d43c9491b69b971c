"""Requests of clients and of other runs.

A request that is recorded is not recorded again: the state keeps its ID until `RequestForgotten` reports that the client has
the answer. `identity` is what a client says about itself, `principal` the user that the API server has authenticated; empty if
that is not known.
"""

from dataclasses import dataclass
from typing import Any, Final

from perdure.engine.activity_options import OpenActivityOptions
from perdure.engine.failures import Failure
from perdure.engine.starts import Callback, ExternalReference
from perdure.engine.versioning import VersioningOverride


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRequested:
    """Somebody tells the run something."""

    request_id: str
    signal_name: str
    input: Any = None
    identity: str = ""
    principal: str = ""
    header: Any = None
    external: ExternalReference | None = None
    """The run that sends it; None where no run does."""
    client_request_id: str = ""
    """The `request_id` if a client of Temporal's API chose it: the event shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """Somebody asks the run to cancel itself."""

    request_id: str
    reason: str = ""
    identity: str = ""
    principal: str = ""
    external: ExternalReference | None = None
    """The run that asks; None where no run does."""
    stop: bool = False
    """Whether only `finally` is to run, and no other handler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateRequested:
    """Somebody stops the run."""

    request_id: str
    reason: str = ""
    details: Any = None
    identity: str = ""
    principal: str = ""
    reset_run: str = ""
    """Name of the WorkflowRun that goes on from a point in its past; empty where none does."""
    reset_event_id: int = 0
    """That point: what the run was to others up to there, that one is from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseRequested:
    """Somebody wants nothing new to begin: in the whole run, or no new attempt of one activity."""

    request_id: str
    activity_id: str | None = None
    reason: str = ""
    identity: str = ""
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpauseRequested:
    """Somebody ends a pause."""

    request_id: str
    activity_id: str | None = None
    reason: str = ""
    identity: str = ""
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityAnswered:
    """Somebody answers for an open activity, in place of its pod: with a result, a failure, or that it was cancelled."""

    request_id: str
    activity_id: str
    result: Any = None
    """Its output; where it was cancelled, how far it came."""
    failure: Failure | None = None
    cancelled: bool = False
    principal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityReset:
    """Somebody wants the attempts of an activity to be counted anew, and the next one to begin now."""

    request_id: str
    activity_id: str
    heartbeat: bool = False
    """Whether the heartbeat details are forgotten too."""
    keep_paused: bool = False
    restore: bool = False
    """Whether its options become again what the workflow has said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionsChanged:
    """Somebody wants an open activity that workers do to have other options."""

    request_id: str
    activity_id: str
    options: OpenActivityOptions | None
    """All of them; None: again what the workflow has said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbacksAttached:
    """Somebody who has wanted to start the workflow is content with the run that is open, and waits for its end."""

    request_id: str
    callbacks: tuple[Callback, ...]
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
    """Whoever asked has had the answer, and will not ask again."""

    request_id: str


OPERATOR: Final = "perdure.dev/operator"
"""Identity of the operator, where it stops a run without being asked to stop that one."""
