"""Which namespaces an operator serves."""

import pytest

from perdure.controller.namespaces import ServedNamespaces


@pytest.mark.parametrize(
    ("served", "want"),
    [
        (ServedNamespaces(), {"shop", "team-a", "team-b"}),
        (ServedNamespaces(("shop",)), {"shop"}),
        (ServedNamespaces(excluded=("shop",)), {"team-a", "team-b"}),
        (ServedNamespaces(excluded=("team-*",)), {"shop"}),
        (ServedNamespaces(("shop", "team-a"), ("team-*",)), {"shop"}),
    ],
)
def test_what_is_excluded_is_not_served_whatever_else_is_said(served: ServedNamespaces, want: set[str]) -> None:
    assert {name for name in ("shop", "team-a", "team-b") if name in served} == want


def test_lists_are_made_of_the_cluster_or_of_each_namespace_that_is_named() -> None:
    assert list(ServedNamespaces(excluded=("team-*",))) == [None]
    assert list(ServedNamespaces(("shop", "team-a"), ("team-*",))) == ["shop"]
