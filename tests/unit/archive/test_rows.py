"""What the archive stores of a run."""

from perdure.archive.rows import ArchiveSettings, archived, omitted_bytes, restored
from support.archived_runs import finished


def test_a_history_above_the_limit_is_left_out() -> None:
    events = [{"eventId": n, "note": "x" * 1_000} for n in range(1, 50)]
    stored = archived(finished("long"), events, ArchiveSettings(history_bytes=10_000))
    assert omitted_bytes(restored(stored.content)) > 49_000
