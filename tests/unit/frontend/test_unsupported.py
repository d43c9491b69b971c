"""The documentation lists exactly the RPCs that Perdure does not serve."""

import re
from pathlib import Path

import grpc
from temporalio.api.operatorservice.v1 import OperatorServiceStub
from temporalio.api.workflowservice.v1 import WorkflowServiceStub

from perdure.frontend.core import Settings
from perdure.frontend.rights import DEPRECATED
from perdure.frontend.server import Frontend

PAGE = Path(__file__).parents[3] / "docs" / "temporal-compatibility.md"
SECTION = "## RPCs that are not supported\n"


def of_the_api() -> set[str]:
    channel = grpc.insecure_channel("localhost:1")  # never connected
    stubs = (WorkflowServiceStub(channel), OperatorServiceStub(channel))
    return {name for stub in stubs for name in vars(stub) if name[0].isupper()}


def test_each_rpc_is_served_or_documented_as_unsupported() -> None:
    table = PAGE.read_text().partition(SECTION)[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| `")]
    documented = [rpc for rpcs, _ in rows for rpc in re.findall(r"`(\w+)`", rpcs)]
    served = Frontend(Settings(authentication=False)).handlers().keys() - DEPRECATED
    assert sorted(documented) == sorted(of_the_api() - served)
    assert all(reason.strip() for _, reason in rows)
