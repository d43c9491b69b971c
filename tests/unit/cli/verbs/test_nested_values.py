"""Values nested deeper than runs may contain: no view of a run fails because of one."""

from typing import Any

import pytest

from support.apiserver import ApiServer, items
from support.cli import RUNS, perdure
from support.view.flow import charged_after_two_refusals


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("output", ["text", "json", "yaml"])
@pytest.mark.parametrize("levels", [300, 950])
def test_a_run_with_a_deeply_nested_input_is_shown(server: ApiServer, levels: int, output: str) -> None:
    run = charged_after_two_refusals().object
    run["spec"]["input"] = nested(levels)
    run["status"] = {"phase": "Failed", "message": "the input nests too deep"}
    server.answers[f"{RUNS}/order-42"] = run
    server.answers["/api/v1/namespaces/shop/pods"] = items()
    server.answers["/apis/coordination.k8s.io/v1/namespaces/shop/leases"] = items()
    done = perdure("describe", "order-42", "--output", output)
    assert done.exit_code == 0, done.exception
    assert "order-42" in done.stdout
