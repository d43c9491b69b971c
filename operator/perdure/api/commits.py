"""The commit that wrote the status of a run or a Schedule."""

from typing import Annotated

from pydantic import Field

from perdure.api.common import StatusModel
from perdure.api.fields import Large, Uid
from perdure.api.rules import Rule


class CommitStatus(StatusModel):
    """The commit that wrote a status. An edit by another client does not match it."""

    number: Large
    """Number of the commit; the first is 1."""

    uid: Uid
    """UID of the object."""

    digest: Annotated[str, Field(max_length=128)]
    """SHA-256 of the number, the UID, and the fields of the status that the operator relies on."""


def _if_old(condition: str, then: str) -> str:
    """A CEL rule: if the old status meets a condition, the new one must meet another."""
    return f"!has(oldSelf.status) || !({condition}) || (has(self.status) && {then})"


STATE_STAYS = Rule(
    "`status.state` must not be removed: finished work would run again (docs/backup.md)",
    _if_old("has(oldSelf.status.state)", "has(self.status.state)"),
    reason="FieldValueForbidden",
    field_path=".status",
)
"""Forbids the removal of a recorded status."""

COMMITS_GROW = Rule(
    "`status.commit` must not be removed or replaced with an older one: finished work would run again (docs/backup.md)",
    _if_old(
        "has(oldSelf.status.commit)",
        "has(self.status.commit) && (self.status.commit.number > oldSelf.status.commit.number "
        "|| self.status.commit == oldSelf.status.commit)",
    ),
    reason="FieldValueForbidden",
    field_path=".status",
)
"""Forbids restoring an older status, and editing a status without its digest."""

HISTORY_GROWS = Rule(
    "`status.history.nextEventId` must not decrease: finished work would run again (docs/backup.md)",
    _if_old(
        "has(oldSelf.status.history)",
        "has(self.status.history) && self.status.history.nextEventId >= oldSelf.status.history.nextEventId",
    ),
    reason="FieldValueForbidden",
    field_path=".status",
)
"""Forbids shortening the history of a run."""
