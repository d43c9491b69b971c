"""The versions of objects that an informer has seen."""

from perdure.controller.informers.index import Index


def test_a_deleted_object_is_forgotten_although_its_last_version_is_not_known() -> None:
    index = Index()
    index.see({"metadata": {"uid": "u", "resourceVersion": "7"}}, deleted=False)
    assert index.version("u") == "7"
    index.see({"metadata": {"uid": "u"}}, deleted=True)
    assert index.version("u") is None
