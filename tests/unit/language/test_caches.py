"""Findings about the caches of activities."""

from typing import Any

import pytest

from support.language.checks import findings_of

WHERE = "spec.activities[0].cache"


def of_activity(**fields: Any) -> list[str]:
    activity = {"name": "work", "startToCloseTimeout": "1m", "container": {"image": "i", "args": ["${input.id}"]}}
    workspaces = [{"name": "files", "emptyDir": {}}] if "workspaces" in fields else []
    return findings_of(activities=[{**activity, **fields}], workspaces=workspaces)


@pytest.mark.parametrize(
    "key", ["${input}", "v1-${input.id}-${input.?other.orValue('')}", "${run.namespace}-${input.id}"]
)
def test_a_key_that_reads_the_input_is_valid(key: str) -> None:
    assert of_activity(cache={"key": key, "maxAge": "1h"}) == []


@pytest.mark.parametrize(
    ("key", "want"),
    [
        ("${steps.a.output}", "unknown name `steps`"),
        ("${input.", "the closing } is missing"),
        ("${item}", "unknown name `item`"),
    ],
)
def test_a_key_that_does_not_compile_is_an_error(key: str, want: str) -> None:
    found = of_activity(cache={"key": key, "maxAge": "1h"})
    assert [each for each in found if each.startswith(f"Error {WHERE}.key: ") and want in each], found


@pytest.mark.parametrize("key", ["constant", "${run.namespace}"])
def test_a_key_without_the_input_causes_a_warning_if_the_container_reads_it(key: str) -> None:
    want = "the result is the same for every input, but `container.args[0]` reads `input`; use it in the key, too"
    assert of_activity(cache={"key": key, "maxAge": "1h"}) == [f"Warning {WHERE}.key: {want}"]
    assert of_activity(cache={"key": key, "maxAge": "1h"}, container={"image": "i", "args": ["${run.name}"]}) == []


def test_a_writable_workspace_with_a_cache_causes_a_warning() -> None:
    cache = {"key": "${input}", "maxAge": "1h"}
    mount = {"name": "files", "mountPath": "/data"}
    (found,) = of_activity(cache=cache, workspaces=[mount])
    assert found.startswith(
        f"Warning {WHERE}: an activity that uses a cached result does not write files to its workspaces"
    )
    assert of_activity(cache=cache, workspaces=[{**mount, "readOnly": True}]) == []
