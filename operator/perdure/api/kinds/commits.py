"""The commit that wrote the status of a run or a Schedule."""

from typing import Annotated

from pydantic import Field

from perdure.api.fields import Large, Uid
from perdure.api.models import StatusModel
from perdure.api.rules import Rule


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
