"""An RPC over any transport: its messages, namespace, admission, errors, context for its handler, and line in the audit log."""

import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, Final, Protocol

import grpc
import structlog
from google.protobuf.message import Message
from temporalio.api.operatorservice import v1 as operatorservice
from temporalio.api.workflowservice import v1 as workflowservice

from perdure.controller.namespaces import ServedNamespaces
from perdure.frontend.errors import RpcError, invalid, namespace_not_found, unavailable
from perdure.frontend.messages import values
from perdure.frontend.messages.values import MAX_ID, UnfitError
from perdure.frontend.transport.door import POLLS, WAITING, Door, Peer, size_of
from perdure.frontend.transport.rights import DEPRECATED, answers, changes
from perdure.kube import client as kube
from perdure.kube.clock import monotonic
from perdure.observe import metrics

_MARGIN = 1.0
DEFAULT_NAMESPACE = "default"
_MAY_LEAVE_IT_OUT = frozenset({"AddSearchAttributes", "ListSearchAttributes", "RemoveSearchAttributes"})
_FORM = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
LONG = 16 * 1024
"""Bytes of a message that is decoded only for a caller who may send it: small parts take far more memory than they have bytes."""


async def _unguarded() -> None:
    """Do nothing: callers are not authenticated."""


async def _permitted(rpc: str) -> None:
    """Permit everything: callers are not authenticated."""


async def _all_of(names: Sequence[str]) -> Sequence[str]:
    """Return all namespaces: callers are not authenticated."""
    return names


@dataclass(frozen=True, slots=True)
class CallContext:
    """The caller of an RPC."""

    seconds_left: float | None
    """The time until the caller gives up; None: never."""
    metadata: Sequence[tuple[str, str | bytes]] = ()
    principal: str = ""
    """The user that the API server authenticated; empty without authentication."""
    recheck: Callable[[], Awaitable[None]] = _unguarded
    """Rejects a caller whose token or rights were revoked since the call began; sends a request at most every 30 s."""
    member: str = ""
    """The member of the fleet that has forwarded the call; empty if the caller is connected to this one."""
    visible: Callable[[Sequence[str]], Awaitable[Sequence[str]]] = _all_of
    """Returns the namespaces that the caller may describe, out of the given ones."""
    permit: Callable[[str], Awaitable[None]] = _permitted
    """Rejects a caller who may not call another RPC, which this one includes."""

    def header(self, name: str) -> str:
        """A header of the call; empty if the caller has not sent it."""
        return next((value for key, value in self.metadata if key == name and isinstance(value, str)), "")

    def within(self, longest: float) -> float:
        """Limit a duration so that the response is sent before the caller's deadline."""
        if self.seconds_left is None:
            return longest
        return min(longest, max(self.seconds_left - _MARGIN, self.seconds_left * 0.5))


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
        named = named or DEFAULT_NAMESPACE
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


def check_served(namespace: str | None, served: ServedNamespaces) -> None:
    """Check that a namespace is served.

    Raises:
        RpcError: It is not.
    """
    if namespace and namespace not in served:
        raise namespace_not_found(namespace)


Handler = Callable[[Any, CallContext], Awaitable[Any]]


class IncomingCall(Protocol):
    """A call that arrives over gRPC or HTTP."""

    @property
    def metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """Headers with lowercase names."""

    @property
    def peer(self) -> Peer:
        """The other end of the connection."""

    @property
    def seconds_left(self) -> float | None:
        """The time until the caller gives up; None: never."""

    async def read(self) -> bytes:
        """Read the message.

        Raises:
            RpcError: The message is missing.
        """

    def on_sent(self, release: Callable[[], None]) -> None:
        """Call a function once the response is sent, or the client has gone."""

    async def head(self, raw: bytes) -> Any:
        """Decode only the part of the message that has its namespace.

        Raises:
            RpcError: The message is not a request of this RPC.
        """

    async def decode(self, raw: bytes) -> Any:
        """Decode the message.

        Raises:
            RpcError: The message is not a request of this RPC.
        """


@dataclass(slots=True)
class Accepted:
    """What is known of a call whose caller was accepted."""

    namespace: str = ""
    """The namespace, which exists and which the caller may use; empty before that, and if the RPC concerns none."""


@dataclass(frozen=True, slots=True)
class Rpc:
    """A served RPC."""

    service: str
    name: str
    handler: Handler
    request: Any
    """The class of its requests."""
    served: ServedNamespaces
    ready: Callable[[], Awaitable[None]]
    door: Door

    async def answer(self, call: IncomingCall) -> Any:
        """Authenticate the caller, then read the message, and handle it.

        Raises:
            RpcError: The RPC failed.
        """
        accepted, arrived = Accepted(), monotonic()
        try:
            response = await self._handle(call, accepted)
        except Exception as error:  # noqa: BLE001 (each becomes a status)
            failure = status_of(self.name, error)
            error.__traceback__ = (
                None  # its frames refer to the request, and would keep it until the garbage collection
            )
            metrics.RPCS.labels(namespace=accepted.namespace, rpc=self.name, code=failure.code.name).inc()
            raise failure from None
        finally:
            if self.name not in WAITING:
                metrics.RPC_DURATION.labels(rpc=self.name).observe(monotonic() - arrived)
        metrics.RPCS.labels(namespace=accepted.namespace, rpc=self.name, code="OK").inc()
        return response

    async def _handle(self, incoming: IncomingCall, accepted: Accepted) -> Any:
        metadata, peer = incoming.metadata, incoming.peer
        user = await self.door.authenticate(metadata, peer)
        principal = user.name if user is not None else ""
        with recorded(self.name, principal, peer.address) as record:
            async with self.door.place(self.name, user), self.door.message(incoming.read, user) as (raw, shrink):
                decode = incoming.decode if len(raw) < LONG else incoming.head
                record.request = request = await decode(raw)
                if len(raw) < LONG:
                    shrink(size_of(request, raw))
                await self.ready()
                namespace = namespace_of(self.name, request)
                await self.door.authorize(user, self.name, namespace)
                if len(raw) >= LONG:
                    record.request = request = await incoming.decode(raw)
                    shrink(size_of(request, raw))
                check_inside(self.name, namespace, request)
                values.name(getattr(request, "identity", ""), "Identity", required=False)
                check_served(namespace, self.served)
                accepted.namespace = namespace or ""

                async def recheck() -> None:
                    await self.door.authorize(await self.door.authenticate(metadata, peer), self.name, namespace)

                async def permit(rpc: str) -> None:
                    await self.door.authorize(user, rpc, namespace)

                visible = partial(self.door.visible, user)
                call = CallContext(incoming.seconds_left, metadata, principal, recheck, visible=visible, permit=permit)
                record.response = await self.handler(request, call)
                if self.name in WAITING - POLLS:  # a task that is refused only now would be lost
                    await recheck()
                if (size := _bytes_of(record.response)) >= LONG:
                    incoming.on_sent(await self.door.response(self.name, size, user))
                return record.response


def _bytes_of(response: Any) -> int:
    """The size of a response that is a message, or bytes; 0 for another one."""
    if isinstance(response, Message):
        return int(response.ByteSize())
    return len(response) if isinstance(response, bytes) else 0


def status_of(rpc: str, error: Exception) -> RpcError:
    """The status that the caller gets for an error."""
    if isinstance(error, RpcError):
        return error
    if isinstance(error, UnfitError):
        return invalid(str(error))
    log = structlog.get_logger("perdure.frontend").bind(rpc=rpc)
    if isinstance(error, kube.RequestError):
        log.warning("The Kubernetes API request failed", error=repr(error))
        return unavailable(str(error))
    log.error("An RPC has failed", exc_info=error)
    return RpcError(grpc.StatusCode.INTERNAL, repr(error))


def rpcs(
    handlers: Mapping[str, Handler], served: ServedNamespaces, ready: Callable[[], Awaitable[None]], door: Door
) -> list[Rpc]:
    """Build the served RPCs.

    Args:
        handlers: The handlers by RPC.
        served: The served namespaces.
        ready: Waits until all runs are known; before that, "not found" would be a guess.
        door: The admission of requests.
    """
    return [
        Rpc(service_of(name), name, handler, request_of(name), served, ready, door)
        for name, handler in handlers.items()
        if is_rpc(name)
    ]


# The RPCs of Temporal's API, from the SDK package

_VERSIONING: Final = "Temporal deprecated this form of worker versioning. Use worker deployments."
_RULES: Final = "Temporal's server disables workflow rules by default. To pause an activity, call `PauseActivity`."
_KUBERNETES: Final = "Namespaces are those of Kubernetes: create and delete them with kubectl."
_CLUSTERS: Final = "Perdure runs in one cluster and does not replicate."
_CREATED: Final = "A worker that polls creates its deployment and its version."
_COMPUTE: Final = "Kubernetes runs and scales workers."
_CONFIG: Final = "No SDK applies the configuration that a server sends. Set worker options in the worker's code."
UNSERVED: Final = {
    "CreateWorkerDeployment": _CREATED,
    "CreateWorkerDeploymentVersion": _CREATED,
    "UpdateWorkerDeploymentVersionComputeConfig": _COMPUTE,
    "ValidateWorkerDeploymentVersionComputeConfig": _COMPUTE,
    **dict.fromkeys(sorted(DEPRECATED), _VERSIONING),
    "CreateWorkflowRule": _RULES,
    "DeleteWorkflowRule": _RULES,
    "DescribeWorkflowRule": _RULES,
    "ListWorkflowRules": _RULES,
    "TriggerWorkflowRule": _RULES,
    "FetchWorkerConfig": _CONFIG,
    "UpdateWorkerConfig": _CONFIG,
    "ListTaskQueuePartitions": "A task queue has no partitions.",
    "PollWorkflowExecutionTimeSkipping": "Time is skipped in tests only: `perdure simulate` and the SDKs' test servers.",
    "ListArchivedWorkflowExecutions": (
        "`ListWorkflowExecutions` also lists archived runs, if this installation has an archive."
    ),
    "RegisterNamespace": _KUBERNETES,
    "DeprecateNamespace": _KUBERNETES,
    "DeleteNamespace": _KUBERNETES,
    "AddOrUpdateRemoteCluster": _CLUSTERS,
    "ListClusters": _CLUSTERS,
    "RemoveRemoteCluster": _CLUSTERS,
}
"""RPCs that return UNIMPLEMENTED, and the reason or the alternative."""

SERVICES: Final[dict[str, ModuleType]] = {
    "temporal.api.workflowservice.v1.WorkflowService": workflowservice,
    "temporal.api.operatorservice.v1.OperatorService": operatorservice,
}


SERVED: Final = frozenset(
    name.removesuffix("Request")
    for module in SERVICES.values()
    for name in vars(module)
    if name.endswith("Request") and name.removesuffix("Request") not in UNSERVED
)
"""The RPCs that operators serve."""


def service_of(rpc: str) -> str:
    """The service that an RPC belongs to.

    Raises:
        KeyError: The RPC does not exist.
    """
    for service, module in SERVICES.items():
        if hasattr(module, f"{rpc}Request"):
            return service
    raise KeyError(rpc)


def is_rpc(name: str) -> bool:
    """Whether an RPC of Temporal's API has this name."""
    return any(hasattr(module, f"{name}Request") for module in SERVICES.values())


def request_of(rpc: str) -> Any:
    """The class of the requests of an RPC."""
    return getattr(SERVICES[service_of(rpc)], f"{rpc}Request")


def response_of(rpc: str) -> Any:
    """The class of the responses of an RPC."""
    return getattr(SERVICES[service_of(rpc)], f"{rpc}Response")


# The audit log: a line for each call that changes something, with the authenticated user


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
