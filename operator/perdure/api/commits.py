"""What the status of a run or a Schedule says of the commit that has written it."""

from typing import Annotated

from pydantic import Field

from perdure.api.common import StatusModel
from perdure.api.fields import Large, Uid
from perdure.api.rules import Rule


class CommitStatus(StatusModel):
    """The commit that has written a status: an edit by another client does not match it."""

    number: Large
    """Number of the commit, from 1."""

    uid: Uid
    """UID of the object that it was made for."""

    digest: Annotated[str, Field(max_length=128)]
    """SHA-256 of the number, the UID, and the fields of the status that the operator goes by."""


def _of_old(condition: str, then: str) -> str:
    """Of an object whose old status meets a condition: what holds of the new one."""
    return f"!has(oldSelf.status) || !({condition}) || (has(self.status) && {then})"


STATE_STAYS = Rule(
    "`status.state` must not be removed: the finished work would be done again (docs/backup.md)",
    _of_old("has(oldSelf.status.state)", "has(self.status.state)"),
    reason="FieldValueForbidden",
    field_path=".status",
)
"""A status that was recorded is not removed."""

COMMITS_GROW = Rule(
    "`status.commit` must not be removed, nor be that of an older status: finished work would be done again (docs/backup.md)",
    _of_old(
        "has(oldSelf.status.commit)",
        "has(self.status.commit) && (self.status.commit.number > oldSelf.status.commit.number "
        "|| self.status.commit == oldSelf.status.commit)",
    ),
    reason="FieldValueForbidden",
    field_path=".status",
)
"""An older status is not put back, and no status is edited without its digest."""

HISTORY_GROWS = Rule(
    "`status.history.nextEventId` must not decrease: work that finished since would be done again (docs/backup.md)",
    _of_old(
        "has(oldSelf.status.history)",
        "has(self.status.history) && self.status.history.nextEventId >= oldSelf.status.history.nextEventId",
    ),
    reason="FieldValueForbidden",
    field_path=".status",
)
"""The history of a run does not become shorter."""
