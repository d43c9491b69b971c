"""Detects edits of a status: each commit has a number and a digest of everything that the operator relies on. Pure.

    status: { …, commit: { number: 12, uid: <of the object>, digest: sha256 of number, uid and the covered fields } }

An edit leaves a digest that does not match. A status that was removed, or an older one that was put back, has no number or a
lower one; the API server refuses both (a rule of the CRD), and an operator that has seen the higher number detects both, too. A
status that a backup tool has given to a new object has the UID of the old one.

The digest does not cover conditions and informational fields: editing them does not change what the operator does. It is computed
from canonical JSON, so that a value has the same hash before it is written to the API server and after it is read back. The
hashes of segments and of cached activities use it, too.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

import orjson

from perdure.api import labels
from perdure.api.state_versions import FIELD as STATE_VERSION

_LARGEST_INTEGER: Final = 2**63
"""The API server keeps integers below this bound; it turns larger ones into floating-point numbers."""

_RESPELLED: Final = re.compile(rb"[:\[,]-?(?:\d+\.\d+|\d+(?:\.\d+)?[eE][-+]?\d+|\d{19,})[,\]}]")
"""A number that the API server may write differently. A match inside a string only costs time."""


def canonical(value: dict[str, Any] | list[Any]) -> bytes:
    """Return JSON without spaces, with sorted keys, and with numbers as the API server returns them: 1.0 becomes 1.

    Raises:
        ValueError: The value cannot be written as JSON, or is nested too deeply.
    """
    try:
        return _written(value)
    except (orjson.JSONEncodeError, RecursionError) as error:
        raise ValueError("the value cannot be written as JSON") from error


def _written(value: dict[str, Any] | list[Any]) -> bytes:
    try:
        written = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # an integer of more than 64 bits, perhaps
        written = b""
    if written and not _RESPELLED.search(written):
        return written
    return orjson.dumps(_respelled(value), option=orjson.OPT_SORT_KEYS)


def _respelled(value: Any) -> Any:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return {key: _respelled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_respelled(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -_LARGEST_INTEGER <= value < _LARGEST_INTEGER:
        return float(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_INTEGER:
        return int(value)
    return value


Json = dict[str, Any]

RESTORED_LABEL: Final = "velero.io/restore-name"
"""Label that Velero puts on every object that it restores."""

OF_RUNS: Final = (
    *("attempt", "completionTime", "definition", "failure", "firstRunId", "history", "output", "phase", "revision"),
    *("runId", "startTime", "state", STATE_VERSION),
)
"""Fields of a run's status that the operator relies on.

The API server fills in defaults at each read: one in these fields that commits do not write would look like an edit."""
OF_SCHEDULES: Final = ("lastCompletionResult", "lastFailure", "state", STATE_VERSION)
"""Fields of a Schedule's status that the operator relies on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """The commit that wrote a status."""

    number: int
    """The number of the commit, from 1; it increases with each commit of an object."""
    uid: str
    """UID of the object."""
    digest: str

    @classmethod
    def of(cls, status: Mapping[str, Any]) -> Self | None:
        """Read the commit from a status; None if it has none, for example because an earlier version wrote it."""
        stored = status.get("commit")
        return cls(number=stored["number"], uid=stored["uid"], digest=stored["digest"]) if stored else None


def digest(status: Mapping[str, Any], fields: tuple[str, ...], number: int, uid: str) -> str:
    """The digest of a status.

    Raises:
        ValueError: The status cannot be written as JSON.
    """
    covered = {field: status[field] for field in fields if field in status}
    return f"sha256:{hashlib.sha256(canonical([number, uid, covered])).hexdigest()}"


def committed(status: Json, fields: tuple[str, ...], uid: str, after: int) -> Json:
    """Return the status to write, with its commit.

    Args:
        status: The status.
        fields: The fields that are covered.
        uid: UID of the object.
        after: Number of the previous commit; 0 if there is none.

    Raises:
        ValueError: The status cannot be written as JSON.
    """
    number = after + 1
    return {**status, "commit": {"number": number, "uid": uid, "digest": digest(status, fields, number, uid)}}


def edited(status: Mapping[str, Any], fields: tuple[str, ...]) -> str:
    """Return why a status counts as edited; empty if it is intact."""
    commit = Commit.of(status)
    if commit is None:
        return ""
    try:
        same = digest(status, fields, commit.number, commit.uid) == commit.digest
    except ValueError as error:
        return f"The status cannot be read: {error}"
    return (
        "" if same else f"The status was edited after commit {commit.number} and does not match `status.commit.digest`"
    )


def fingerprint(status: Mapping[str, Any], fields: tuple[str, ...], uid: str) -> str:
    """Identify a status of an object, intact or not, by 16 hexadecimal digits.

    Raises:
        ValueError: The status cannot be written as JSON.
    """
    fields = fields if status.get("state") else ()  # otherwise there are only conditions and the matching phase
    return hashlib.sha256(canonical([status.get("commit"), digest(status, fields, 0, uid)])).hexdigest()[:16]


class Witness:
    """Tracks the commits of one object, to verify a status that any client may have written."""

    def __init__(self, fields: tuple[str, ...], uid: str, *, starts_work: bool) -> None:
        """Start verifying the status of an object.

        Args:
            fields: The covered fields of its status.
            uid: UID of the object.
            starts_work: Whether the object starts its work if it has no status.
        """
        self._fields = fields
        self._uid = uid
        self._starts_work = starts_work
        self._known: Commit | None = None
        self._events = 0
        """The next event ID in the newest status of a run."""
        self.accepted = False
        """Whether the newest status is damaged and an administrator has accepted it."""

    def commit(self, status: Json, before: Mapping[str, Any]) -> Json:
        """Return the status to write after the current one."""
        numbers = (each.number for each in (self._known, Commit.of(before)) if each is not None)
        return committed(status, self._fields, self._uid, max(numbers, default=0))

    def recorded(self, status: Mapping[str, Any]) -> None:
        """Record a status that was written or found intact."""
        self.accepted = False
        self._known = Commit.of(status) or self._known
        self._events = _next_event(status)

    def damage(self, obj: Mapping[str, Any]) -> str:
        """The problem with the status of an object in the API server; empty if it is intact or was accepted.

        Args:
            obj: The object, with its metadata.
        """
        status = obj.get("status") or {}
        wrong = self._wrong(status, obj["metadata"])
        accepted = bool(wrong) and self.is_accepted(obj)
        if wrong and not accepted:
            return f"{wrong}; {self.remedy(status)}"
        self.recorded(status)
        self.accepted = accepted
        return ""

    def is_accepted(self, obj: Mapping[str, Any]) -> bool:
        """Whether an administrator has accepted the current status of an object."""
        accepted = (obj["metadata"].get("annotations") or {}).get(labels.ACCEPT_STATE_ANNOTATION)
        return bool(accepted) and accepted == self._fingerprint(obj.get("status") or {})

    def remedy(self, status: Mapping[str, Any]) -> str:
        """Return instructions for repairing a damaged status."""
        found = self._fingerprint(status)
        accept = f"; to continue from the status as it is, set the annotation `{labels.ACCEPT_STATE_ANNOTATION}` to `{found}`"
        return f"restore the status, or delete the object{accept if found else ''}"

    def _wrong(self, status: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
        if not status.get("state"):
            return self._wrong_from_scratch(meta)
        return edited(status, self._fields) or self._wrong_commit(status)

    def _wrong_commit(self, status: Mapping[str, Any]) -> str:
        commit, known = Commit.of(status), self._known
        if commit is None and known is not None:
            return f"The status was edited after commit {known.number}: `status.commit` was removed"
        # An earlier version of the operator wrote no commits.
        uid = commit.uid if commit is not None else status.get("runId") or self._uid
        if uid != self._uid:
            return f"The status was recorded for another object, with UID {uid}, as after a restore from a backup"
        if commit is None:
            lost = _next_event(status) < self._events
            return f"An older status was written back: it lacks event {self._events - 1}" if lost else ""
        if known is not None and (commit.number < known.number or _differs(commit, known)):
            return f"An older status was written back: commit {commit.number}, after commit {known.number}"
        return ""

    def _wrong_from_scratch(self, meta: Mapping[str, Any]) -> str:
        if self._known is not None or self._events > 0:
            number = f" {self._known.number}" if self._known else ""
            return f"The status was removed after commit{number}"
        restored = (meta.get("labels") or {}).get(RESTORED_LABEL)
        if restored is not None and self._starts_work:
            return f"Velero restored the object without its status (restore `{restored}`), so its finished work is not known"
        return ""

    def _fingerprint(self, status: Mapping[str, Any]) -> str:
        try:
            return fingerprint(status, self._fields, self._uid)
        except ValueError:
            return ""


def _differs(commit: Commit, known: Commit) -> bool:
    return commit.number == known.number and commit.digest != known.digest


def _next_event(status: Mapping[str, Any]) -> int:
    history = status.get("history")
    number = history.get("nextEventId", 0) if isinstance(history, dict) else 0
    return number if isinstance(number, int) else 0


def next_event_id(status: Mapping[str, Any]) -> int:
    """The ID of the event that continues the history in a status; 1 without a history."""
    found: int = (status.get("history") or {}).get("nextEventId", 1)
    return found
