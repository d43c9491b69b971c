"""The audit log of the frontend: a line for each call that changes something, with the authenticated user."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from perdure.frontend.errors import RpcError
from perdure.frontend.messages.values import MAX_ID
from perdure.frontend.transport.rights import answers, changes


@dataclass(slots=True)
class AuditRecord:
    """The fields of a line, which are set as the call proceeds."""

    request: Any = None
    response: Any = None


@contextmanager
def recorded(rpc: str, user: str, address: str) -> Iterator[AuditRecord]:
    """Write the line of a call at the end of the block, also after an exception.

    Read-only calls have no line. Responses of workers to their tasks have none either, because histories name the user,
    except for rejected responses and responses that identify an activity by its ID, which any caller can know.
    """
    record, outcome = AuditRecord(), "OK"
    try:
        yield record
    except RpcError as error:
        outcome = error.code.name
        raise
    except BaseException as error:
        outcome = type(error).__name__
        raise
    finally:
        if changes(rpc) or (answers(rpc) and (rpc.endswith("ById") or outcome != "OK")):
            structlog.get_logger("perdure.audit").info(
                "RPC", rpc=rpc, user=user, address=address, outcome=outcome, **_about(record)
            )


def _about(record: AuditRecord) -> dict[str, str]:
    """The subject of the call: IDs as the client gives them, and the run that was created. Long IDs are cut."""
    request = record.request
    inner = getattr(request, "operations", None) or ()
    if inner:
        request = inner[0].start_workflow  # the first of two operations on the same workflow
    found: dict[str, Any] = {}
    for name in ("workflow_execution", "execution"):
        named = getattr(request, name, None)
        found["workflow_id"] = found.get("workflow_id") or getattr(named, "workflow_id", "")
        found["run_id"] = found.get("run_id") or getattr(named, "run_id", "")
    for name in ("namespace", "workflow_id", "schedule_id", "job_id", "activity_id", "identity"):
        found[name] = found.get(name) or getattr(request, name, "")
    found["run_id"] = found["run_id"] or getattr(record.response, "run_id", "")
    return {name: value[:MAX_ID] for name, value in found.items() if isinstance(value, str) and value}
