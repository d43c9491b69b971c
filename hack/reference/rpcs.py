"""The page of Temporal's RPCs: which ones the operator serves, and why it does not serve the others."""

from typing import Final

from temporalio.api.operatorservice.v1 import service_pb2 as operator_service
from temporalio.api.workflowservice.v1 import service_pb2 as workflow_service

from perdure.frontend.transport.rpc import UNSERVED
from reference.markdown import page, table

_HEAD: Final = """\
The operator serves Temporal's gRPC API on port 7233. RPCs that it does not serve return `UNIMPLEMENTED`.
[Compatibility with Temporal](../temporal-compatibility.md) lists how served RPCs differ."""


def pages() -> dict[str, str]:
    """Write the page."""
    parts = [_HEAD]
    for title, file in (("WorkflowService", workflow_service), ("OperatorService", operator_service)):
        names = sorted(file.DESCRIPTOR.services_by_name[title].methods_by_name)
        parts += [
            f"## {title}",
            f"Served: {', '.join(f'`{name}`' for name in names if name not in UNSERVED)}.",
            "Not served:",
            table(("RPC", "reason"), ((f"`{name}`", UNSERVED[name]) for name in names if name in UNSERVED)),
        ]
    return {"rpcs.md": page("RPCs", "the services of operator/perdure/frontend", *parts)}
