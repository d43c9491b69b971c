"""Determine the namespace of an RPC, for authorization and for its handler. Pure."""

import re
from typing import Any

from perdure.frontend.errors import invalid

DEFAULT = "default"
_MAY_LEAVE_IT_OUT = frozenset({"AddSearchAttributes", "ListSearchAttributes", "RemoveSearchAttributes"})
_FORM = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def namespace_of(rpc: str, request: Any) -> str | None:
    """The namespace of an RPC; None if it concerns no namespace.

    Raises:
        RpcError: The namespace is missing or not valid.
    """
    if not hasattr(request, "namespace"):
        return None
    named: str = request.namespace
    if rpc == "DescribeNamespace":
        named = named or request.id
    elif rpc in _MAY_LEAVE_IT_OUT:
        named = named or DEFAULT
    if not named:
        raise invalid("Namespace is not set on request.")
    if not _FORM.fullmatch(named):
        raise invalid(f"Namespace: {named[:63]!r} is not a valid name of a Kubernetes namespace")
    return named


def check_inside(rpc: str, namespace: str | None, request: Any) -> None:
    """Check that the operations in a request have its namespace, and set it if it is missing.

    Raises:
        RpcError: An operation names another namespace.
    """
    if rpc != "ExecuteMultiOperation":
        return
    for operation in request.operations:
        kind = operation.WhichOneof("operation")
        if kind is None:
            continue
        inner = getattr(operation, kind)
        if inner.namespace not in {"", namespace}:
            raise invalid("Operation namespace did not match request's namespace.")
        inner.namespace = namespace
