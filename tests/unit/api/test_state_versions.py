"""The state version that the spec of a run needs, and versions in texts."""

from typing import Any

import pytest

from perdure.api.state_versions import (
    FOREIGN_WORKFLOWS,
    NEWEST,
    OLDEST,
    SERVICES,
    needed,
    parse_version,
    version_in,
)

DB = [{"name": "db", "image": "i"}]


@pytest.mark.parametrize(
    ("definition", "version"),
    [
        ({"steps": []}, OLDEST),
        ({"steps": [], "services": DB}, SERVICES),
        ({"steps": [], "blocks": [{"name": "b", "services": DB}]}, SERVICES),
        ({"steps": [], "activities": [{"name": "a", "services": DB}]}, OLDEST),
        ({"steps": [{"childWorkflow": {"workflow": {"name": "a/b"}}}]}, FOREIGN_WORKFLOWS),
        (None, OLDEST),
    ],
)
def test_a_definition_with_services_of_steps_is_stored_in_the_version_that_knows_them(
    definition: Any, version: int
) -> None:
    assert needed({"inline": definition}, None) == needed({}, definition) == version


@pytest.mark.parametrize("text", ["-1", "3.1", "four", " 3", "\u0663", "9" * 10, "9" * 5_000])
def test_a_version_of_content_that_is_not_valid_is_newer_and_an_agreed_one_is_the_oldest(text: str) -> None:
    """Python reads no integers of more than 4,300 digits."""
    assert version_in(text) == NEWEST + 1
    assert parse_version(text) == OLDEST


@pytest.mark.parametrize(("text", "version"), [(None, OLDEST), ("", OLDEST), ("0", OLDEST), ("3", 3), ("12", 12)])
def test_a_version_is_read_from_a_text(text: str | None, version: int) -> None:
    assert version_in(text) == parse_version(text) == version
