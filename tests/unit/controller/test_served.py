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
def test_an_excluded_namespace_is_never_served(served: ServedNamespaces, want: set[str]) -> None:
    assert {name for name in ("shop", "team-a", "team-b") if name in served} == want


def test_lists_cover_the_cluster_or_each_named_namespace() -> None:
    assert list(ServedNamespaces(excluded=("team-*",))) == [None]
    assert list(ServedNamespaces(("shop", "team-a"), ("team-*",))) == ["shop"]
