"""The versions of objects that an informer has seen."""

from perdure.controller.dispatch.index import Index


def test_a_deleted_object_is_forgotten_although_its_last_version_is_not_known() -> None:
    index = Index()
    index.update({"metadata": {"uid": "u", "resourceVersion": "7"}})
    assert index.version("u") == "7"
    index.delete("u")
    assert index.version("u") is None
