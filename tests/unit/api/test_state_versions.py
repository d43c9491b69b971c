"""The state version that the spec of a run needs."""

from typing import Any

import pytest

from perdure.api.state_versions import FOREIGN_WORKFLOWS, OLDEST, SERVICES, needed

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
