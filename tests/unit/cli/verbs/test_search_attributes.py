"""`perdure search-attributes`: output, writes, and usage errors."""

import json
from typing import Any

import pytest
from click.testing import Result

from perdure.api.search_attributes import REGISTRY, AttributeType
from perdure.frontend.messages.payloads import ATTRIBUTE_TYPES
from support.apiserver import ApiServer
from support.cli import perdure

PATH = f"/api/v1/namespaces/shop/configmaps/{REGISTRY}"


def run(*arguments: str) -> Result:
    return perdure("search-attributes", *arguments)


def registry(**types: str) -> dict[str, Any]:
    """A registry that an operator has written."""
    annotations = {"perdure.dev/adopted": "true"}
    meta = {"name": REGISTRY, "namespace": "shop", "resourceVersion": "7", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": types}


def test_the_types_are_those_of_the_frontend() -> None:
    assert tuple(AttributeType) == ATTRIBUTE_TYPES


def test_search_attributes_are_listed_by_name(server: ApiServer) -> None:
    server.answers[PATH] = registry(Total="Double", CustomerId="Keyword", Odd="Number")
    assert run("list").stdout.splitlines() == [
        "NAME        TYPE",
        "CustomerId  Keyword",
        "Odd         Number (unknown type: treated as not registered)",
        "Total       Double",
    ]
    assert json.loads(run("list", "-o", "json").stdout) == {"Total": "Double", "CustomerId": "Keyword", "Odd": "Number"}
    assert run("list", "-o", "name").stdout.splitlines() == ["CustomerId", "Odd", "Total"]


def test_an_empty_registry_is_reported(server: ApiServer) -> None:
    done = run("list")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "No search attributes are registered in namespace `shop`.\n"
    assert server.asked


def test_a_missing_namespace_is_reported(server: ApiServer) -> None:
    del server.answers["/api/v1/namespaces/shop"]
    done = run("list")
    assert done.exit_code == 1
    assert "there is no namespace `shop`" in done.stderr


def test_the_first_search_attributes_create_the_registry(server: ApiServer) -> None:
    done = run("create", "CustomerId", "Region", "--type", "keyword")
    assert (done.exit_code, done.stdout) == (
        0,
        "CustomerId is registered as Keyword\nRegion is registered as Keyword\n",
    )
    (made,) = server.created
    assert (made["kind"], made["metadata"]["name"]) == ("ConfigMap", REGISTRY)
    assert made["data"] == {"CustomerId": "Keyword", "Region": "Keyword"}


def test_later_search_attributes_keep_existing_ones(server: ApiServer) -> None:
    before = registry(Total="Double")
    server.answers[PATH] = before
    done = run("create", "CustomerId", "Total", "--type", "Double")
    assert done.stdout == "CustomerId is registered as Double\nTotal is registered already as Double\n"
    assert server.answers[PATH] == {**before, "data": {"Total": "Double", "CustomerId": "Double"}}


def test_an_existing_search_attribute_is_not_written_again(server: ApiServer) -> None:
    stored = registry(Total="Double")
    server.answers[PATH] = stored
    assert run("create", "Total", "--type", "Double").exit_code == 0
    assert server.answers[PATH] is stored


def test_the_type_of_a_search_attribute_cannot_change(server: ApiServer) -> None:
    stored = registry(Total="Double")
    server.answers[PATH] = stored
    done = run("create", "New", "Total", "--type", "Int")
    assert done.exit_code == 1
    assert "`Total` has the type Double, which cannot change; remove it first" in done.stderr
    assert server.answers[PATH] is stored


def test_removing_a_search_attribute_keeps_the_others(server: ApiServer) -> None:
    before = registry(Total="Double", CustomerId="Keyword")
    server.answers[PATH] = before
    assert run("remove", "Total").stdout == "Total removed\n"
    assert server.answers[PATH] == {**before, "data": {"CustomerId": "Keyword"}}
    done = run("remove", "CustomerId", "Total")
    assert done.exit_code == 1
    assert "`Total` is not registered; `perdure search-attributes list`" in done.stderr
    assert server.answers[PATH] == {**before, "data": {"CustomerId": "Keyword"}}


def test_a_concurrent_change_is_kept(server: ApiServer) -> None:
    versions = iter("78")
    server.answers[PATH] = lambda: {**registry(), "metadata": {"name": REGISTRY, "resourceVersion": next(versions)}}
    done = run("create", "CustomerId", "--type", "Keyword")
    assert done.exit_code == 2
    assert "please apply your changes to the latest version and try again" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["create", "CustomerId"], "--type"),
        (["create", "CustomerId", "--type", "Keywrd"], "did you mean Keyword?"),
        (["create", "WorkflowId", "--type", "Keyword"], "`WorkflowId` is built in"),
        (["create", "BuildIds", "--type", "Keyword"], "`BuildIds` is built in"),
        (["create", "a b", "--type", "Keyword"], "the search attribute `a b` must be 1 to"),
    ],
)
def test_an_invalid_search_attribute_is_rejected_before_any_request(
    server: ApiServer, arguments: list[str], reported: str
) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert reported in " ".join(done.stderr.split())
    assert not server.asked
