"""The versions of objects that an informer has seen."""

from typing import Any

import pytest

from perdure.controller.dispatch.index import Index


def run(version: int, *, closed: bool = False) -> dict[str, Any]:
    status = {"state": {}, "completionTime": "2026-12-01T00:00:00Z"} if closed else {"state": {"phase": "Running"}}
    meta = {"namespace": "default", "name": "a", "uid": "uid-a", "resourceVersion": str(version)}
    return {"metadata": meta, "spec": {}, "status": status}


def test_a_deleted_object_is_forgotten_although_its_last_version_is_not_known() -> None:
    index = Index()
    index.update({"metadata": {"uid": "u", "resourceVersion": "7"}})
    assert index.version("u") == "7"
    index.delete("u")
    assert index.version("u") is None


def test_the_version_of_an_object_is_the_newest_one_that_was_shown() -> None:
    index = Index()
    index.update(run(5))
    index.update(run(4))
    assert index.version("uid-a") == "5"


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "hibernated"])
def test_an_event_that_is_handled_late_does_not_hide_the_version_of_a_run_in_the_directory(closed: bool) -> None:
    """The end of a run of another member is passed on without kopf, whose handler of an earlier event is called later."""
    index = Index()
    index.directory.put(run(6, closed=closed))
    index.directory.pack("uid-a")
    index.update(run(6, closed=closed))
    index.leave_to_directory("uid-a")
    index.update(run(5))
    assert index.version("uid-a") == "6"


def test_a_later_event_than_that_in_the_directory_counts() -> None:
    index = Index()
    index.directory.put(run(6, closed=True))
    index.leave_to_directory("uid-a")
    index.update(run(7, closed=True))
    assert index.version("uid-a") == "7"
