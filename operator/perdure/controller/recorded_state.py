"""The recorded state of a run: read it without losing anything, and decide whether this operator can rely on it.

An older operator must not continue a run whose state it reads only in part: its next commit would drop the rest, with a correct
digest. It meets such runs during an upgrade, after a rollback, and when it gains a shard of a newer operator.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from perdure.api import labels
from perdure.api.json_values import mapping
from perdure.api.kinds.status import CommitStatus
from perdure.api.kinds.workflowrun import History, RevisionReference, WorkflowRunStatus
from perdure.api.models import json_fields
from perdure.api.state_versions import unknown_in
from perdure.api.stored import newer_annotation
from perdure.controller.reconcile.newer_states import NewerStateError
from perdure.controller.reconcile.record import Status
from perdure.controller.state_versions import state_versions
from perdure.engine import history
from perdure.engine.payloads import newer_reference
from perdure.engine.starts import StartExtras
from perdure.engine.state import RunState
from perdure.engine.step import next_wake
from perdure.kube import client as kube
from perdure.language.memory import load_memory
from perdure.runtime.chains import Continuation, Parent, ResetOrigin
from perdure.runtime.commits import OF_RUNS, Commit, edited, next_event_id
from perdure.runtime.operation_requests import StartSignal
from perdure.schedule.run_manifests import ScheduledBy

_RESTORE: Final = "restore the status, or delete the run"
"""How to fix an unreadable status."""
_FIELDS: Final = {
    "status": json_fields(WorkflowRunStatus),
    "status.history": json_fields(History),
    "status.commit": json_fields(CommitStatus),
    "status.revision": json_fields(RevisionReference),
}
"""The known fields of the parts of a status that are not read by a `StoredStruct`, and not computed from those."""
_ANNOTATIONS: Final[Mapping[str, type[Any]]] = {
    labels.CONTINUES_ANNOTATION: Continuation,
    labels.PARENT_ANNOTATION: Parent,
    labels.RESET_ANNOTATION: ResetOrigin,
    labels.SCHEDULED_BY_ANNOTATION: ScheduledBy,
    labels.START_ANNOTATION: StartExtras,
    labels.START_SIGNAL_ANNOTATION: StartSignal,
}
"""The annotations that a run begins with, and passes on to its next runs."""


class DamagedStateError(Exception):
    """A run cannot continue from its status, which was edited, removed, or partly restored. The message says what to do."""


def stored_state(run: kube.Object) -> RunState | None:
    """Read the state of a run; None if it has not started.

    Raises:
        NewerStateError: A newer version wrote the run, and this one cannot read all of it.
        DamagedStateError: The state is missing or not valid.
    """
    if why := _newer_start(run):
        raise NewerStateError(why)
    status: Status = run.get("status") or {}
    stored, following = status.get("state"), next_event_id(status)
    if stored is None and following == 1:
        return None
    try:
        state = history.decode_state(stored)
        if state.code is None and state.memory is not None:
            state = msgspec.structs.replace(state, memory=load_memory(state.memory))
        next_wake(state, state.start_time)  # compares all its times
    except (msgspec.ValidationError, TypeError) as error:
        if _is_intact(status):
            raise NewerStateError(f"`status.state`: {error}") from error
        raise DamagedStateError(f"`status.state` cannot be read: {error}; {_RESTORE}") from error
    if why := _newer_history(status):
        raise NewerStateError(why)
    if state.next_event_id != following:
        message = f"`status.state` is at event {state.next_event_id}, but `status.history` is at event {following}; {_RESTORE}"
        raise DamagedStateError(message)
    return state


def distrust(run: kube.Object) -> str:
    """Say why the status of a run must not be acted upon: it was edited, or a newer version wrote it. Empty if it may be."""
    status = run.get("status") or {}
    if why := state_versions().unreadable(status) or edited(status, OF_RUNS):
        return why
    try:
        stored_state(run)
    except NewerStateError as error:
        return str(error)
    except DamagedStateError:
        return ""  # an early version recorded it, without a digest
    return ""


def _newer_start(run: kube.Object) -> str:
    """What only a newer version can read in a run, apart from its state, its latest events, and its definition."""
    if why := state_versions().unreadable(run.get("status") or {}):
        return why
    for key, kind in _ANNOTATIONS.items():
        if why := newer_annotation(run, key, kind):
            return why
    status = run.get("status") or {}
    for at, known in _FIELDS.items():
        part = status if at == "status" else mapping(status.get(at.removeprefix("status.")))
        if why := unknown_in(part, known, at):
            return why
    return newer_reference(status) or _newer_references_of_manifest(run)


def _newer_references_of_manifest(run: kube.Object) -> str:
    """What only a newer version can read in the references to large payloads with which a run begins."""
    annotations = run["metadata"].get("annotations") or {}
    found = [text for key in _ANNOTATIONS if (text := annotations.get(key))]
    return newer_reference(run.get("spec")) or next(filter(None, map(_newer_reference_in, found)), "")


def _newer_reference_in(text: str) -> str:
    with suppress(msgspec.DecodeError, RecursionError):  # otherwise, no operator has written it
        return newer_reference(msgspec.json.decode(text))
    return ""


def _newer_history(status: Status) -> str:
    """What only a newer version can read in the latest events of a run."""
    try:
        history.decode_events((status.get("history") or {}).get("events") or [])
    except msgspec.ValidationError as error:
        return f"`status.history.events`: {error}" if _is_intact(status) else ""
    return ""


def _is_intact(status: Status) -> bool:
    """Whether an operator wrote a status as it is."""
    return Commit.of(status) is not None and not edited(status, OF_RUNS)
