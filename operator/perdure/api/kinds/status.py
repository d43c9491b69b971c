"""Parts of the statuses of several kinds: conditions (what is true, why, and since when), and the commit that wrote a status."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, ValidationError

from perdure.api.fields import Large, Time, Uid, map_list
from perdure.api.models import StatusModel
from perdure.api.reasons import ConditionReason, ConditionStatus, ConditionType
from perdure.api.rules import Rule

MAX_MESSAGE = 32_768
"""Maximum length of a message; a longer one is truncated and ends with `…`."""


class Condition(StatusModel):
    """One aspect of the state of an object, which is true, false or unknown."""

    type: Annotated[
        str,
        Field(
            min_length=1, max_length=316, pattern="^([-A-Za-z0-9.]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
        ),
    ]
    """Type of the condition in CamelCase, such as `Ready` or `Succeeded`."""

    status: ConditionStatus
    """Whether the condition holds: True, False or Unknown."""

    reason: Annotated[str, Field(min_length=1, max_length=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """Reason as one CamelCase word, for programs."""

    message: Annotated[str, Field(max_length=MAX_MESSAGE)] = ""
    """Reason as a sentence, for people."""

    observed_generation: Large | None = None
    """The `metadata.generation` that the condition describes."""

    last_transition_time: Time
    """When `status` last changed."""


Conditions = Annotated[list[Condition], map_list("type", 16)]
"""The conditions of an object, each type once."""


def read_conditions(status: Mapping[str, Any]) -> list[Condition]:
    """Read the conditions in the status of an object; invalid ones are left out."""
    found = []
    for each in status.get("conditions") or ():
        with suppress(ValidationError):
            found.append(Condition.model_validate(each, by_alias=True))
    return found


def find_condition(conditions: Iterable[Condition], kind: str) -> Condition | None:
    """Find a condition by its type.

    Args:
        conditions: The conditions of an object.
        kind: The type.

    Returns:
        The condition, or None if it is not set.
    """
    return next((condition for condition in conditions if condition.type == kind), None)


def set_condition(
    conditions: Iterable[Condition],
    kind: ConditionType,
    status: ConditionStatus | bool | None,
    reason: ConditionReason,
    message: str = "",
    *,
    now: datetime,
    observed_generation: int | None = None,
) -> list[Condition]:
    """Set a condition; the others and the order stay the same.

    Args:
        conditions: The old conditions, which are not changed.
        kind: The type of the condition to set.
        status: Whether it holds; None is Unknown.
        reason: The reason.
        message: A sentence; truncated to `MAX_MESSAGE` characters.
        now: Becomes `lastTransitionTime` if the status changed.
        observed_generation: The generation of the spec that the condition describes.

    Returns:
        The new list, which equals the old one if nothing changed.
    """
    conditions = list(conditions)
    if not isinstance(status, ConditionStatus):
        status = ConditionStatus("Unknown" if status is None else str(status))
    if len(message) > MAX_MESSAGE:
        message = message[: MAX_MESSAGE - 1] + "…"
    old = find_condition(conditions, kind)
    contents = status, reason, message, observed_generation
    if old is not None and (old.status, old.reason, old.message, old.observed_generation) == contents:
        return conditions
    new = Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        observed_generation=observed_generation,
        last_transition_time=old.last_transition_time if old is not None and old.status == status else now,
    )
    if old is None:
        return [*conditions, new]
    return [new if condition is old else condition for condition in conditions]


def _not_removed(field: str, message: str) -> Rule:
    """A rule of a status: a field that is set must not be removed."""
    return Rule(message, f"has(self.{field}) || !has(oldSelf.{field})", reason="FieldValueForbidden")


_COMMITS_GROW = (
    "`status.commit` must not be removed or replaced with an older one: finished work would run again (docs/backup.md)"
)
_HISTORY_GROWS = "`status.history.nextEventId` must not decrease: finished work would run again (docs/backup.md)"

# The API server evaluates the rules of a whole object for every write, and a rule costs most where it reads a field of an object
# with many fields. Each rule is therefore in the smallest object that contains what it checks.
STATE_STAYS = _not_removed(
    "state", "`status.state` must not be removed: finished work would run again (docs/backup.md)"
)
"""Forbids the removal of a recorded status."""

COMMIT_STAYS = _not_removed("commit", _COMMITS_GROW)
"""Forbids editing a status without its digest."""

COMMITS_GROW = Rule(_COMMITS_GROW, "self.number > oldSelf.number || self == oldSelf", reason="FieldValueForbidden")
"""A rule of `commit`: forbids restoring an older status."""

RECORD_STAYS = Rule(
    "`status.state` must not be removed, `status.commit` must not be removed, and `status.history` must not be removed: finished "
    "work would run again (docs/backup.md)",
    " && ".join(f"(has(self.{field}) || !has(oldSelf.{field}))" for field in ("state", "commit", "history")),
    reason="FieldValueForbidden",
)
"""Forbids the removal of recorded fields of a run. One rule, because three add 25 % to the CPU time of a status write."""

HISTORY_GROWS = Rule(_HISTORY_GROWS, "self.nextEventId >= oldSelf.nextEventId", reason="FieldValueForbidden")
"""A rule of `history`: forbids shortening the history of a run."""

STATUS_STAYS = Rule(
    "`status` must not be removed: finished work would run again (docs/backup.md)",
    "has(self.status) || !has(oldSelf.status) || !(has(oldSelf.status.state) || has(oldSelf.status.commit))",
    reason="FieldValueForbidden",
    field_path=".status",
)
"""A rule of an object whose status has no default: its other rules are not evaluated once the status is gone."""


class CommitStatus(StatusModel):
    """The commit that wrote a status. An edit by another client does not match it."""

    rules = (COMMITS_GROW,)

    number: Large
    """Number of the commit; the first is 1."""

    uid: Uid
    """UID of the object."""

    digest: Annotated[str, Field(max_length=128)]
    """SHA-256 of the number, the UID, and the fields of the status that the operator relies on."""
