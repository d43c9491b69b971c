"""The gRPC server: finds the handler of an RPC, and gives what goes wrong the form that SDKs understand."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import structlog
from temporalio.api.operatorservice import v1 as operatorservice
from temporalio.api.workflowservice import v1 as workflowservice

from perdure.controller.manager import Manager
from perdure.frontend.core import Core, Settings
from perdure.frontend.errors import RpcError, invalid, namespace_not_found, unavailable
from perdure.frontend.given import UnfitError
from perdure.frontend.guard import Guard
from perdure.frontend.namespaces import namespace_of
from perdure.frontend.runs import Runs
from perdure.frontend.service.activities import Activities
from perdure.frontend.service.batches import Batches
from perdure.frontend.service.call import Call
from perdure.frontend.service.changing import Changing
from perdure.frontend.service.histories import Histories
from perdure.frontend.service.listing import Listing
from perdure.frontend.service.resets import Resets
from perdure.frontend.service.scheduling import Scheduling
from perdure.frontend.service.starting import Starting
from perdure.frontend.service.system import System
from perdure.frontend.service.tasks import WorkflowTasks
from perdure.frontend.service.updating import Updating
from perdure.frontend.service.workers import TaskWorkers
from perdure.frontend.service.workflows import Workflows
from perdure.kube import client as api
from perdure.observe import metrics

MAX_MESSAGE = 4 * 1024 * 1024
_SERVICES = {
    "temporal.api.workflowservice.v1.WorkflowService": workflowservice,
    "temporal.api.operatorservice.v1.OperatorService": operatorservice,
}
_STATUS_DETAILS = "grpc-status-details-bin"

Handler = Callable[[Any, Call], Awaitable[Any]]


def settings(environment: Mapping[str, str]) -> Settings:
    """The settings that the environment gives.

    Raises:
        ValueError: a number is none.
    """
    authentication = environment.get("PERDURE_TEMPORAL_AUTHENTICATION") or "Kubernetes"
    if authentication not in {"Kubernetes", "None"}:
        raise ValueError(f"PERDURE_TEMPORAL_AUTHENTICATION is {authentication!r}; it can be `Kubernetes` or `None`")
    return Settings(
        authentication=authentication == "Kubernetes",
        certificate=environment.get("PERDURE_TEMPORAL_TLS_CERT", ""),
        key=environment.get("PERDURE_TEMPORAL_TLS_KEY", ""),
        suggest_events=int(environment.get("PERDURE_TEMPORAL_SUGGEST_EVENTS") or 4_096),
    )


class Frontend(Core):
    """The frontend of one operator."""

    def attach(self, manager: Manager) -> None:
        """Serve the runs of a manager."""
        self.runs = Runs(manager)

    def handlers(self) -> dict[str, Handler]:
        """Every RPC that is offered, by its name."""
        tasks = WorkflowTasks(self)
        starting = Starting(self, tasks)
        found: dict[str, Handler] = {}
        for service in (
            tasks,
            Activities(self),
            starting,
            Workflows(self),
            Updating(self, starting),
            Histories(self),
            Listing(self),
            Scheduling(self),
            Resets(self),
            Changing(self),
            Batches(self),
            TaskWorkers(self),
            System(self),
        ):
            for name in dir(service):
                if not name.startswith("_") and name not in {"begin", "take_at_once"}:
                    found["".join(word.capitalize() for word in name.split("_"))] = getattr(service, name)
        return found


@asynccontextmanager
async def serve(frontend: Frontend, address: str) -> AsyncIterator[int]:
    """Serve at an address such as ``127.0.0.1:7233``; gives the port.

    Raises:
        RuntimeError: the address cannot be had.
        ValueError: nobody would be asked who they are, at an address that others reach.
    """
    chosen = frontend.settings
    if not chosen.authentication and not _is_loopback(address):
        raise ValueError(f"without authentication SDKs are served on a loopback address only, and not at {address}")
    guard = Guard(frontend.runs.manager.client) if chosen.authentication else None
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE),
            ("grpc.max_send_message_length", MAX_MESSAGE),
            ("grpc.so_reuseport", 0),
        ]
    )
    server.add_generic_rpc_handlers(_generic_handlers(frontend, guard))
    server.add_generic_rpc_handlers((_health(),))
    secured = _credentials(chosen) if chosen.certificate else None
    port = server.add_secure_port(address, secured) if secured else server.add_insecure_port(address)
    await server.start()
    try:
        yield port
    finally:
        # Its inner tasks may have been cancelled with those of the operator, which is no failure of ours.
        await asyncio.wait({asyncio.ensure_future(server.stop(grace=1.0))})


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _credentials(chosen: Settings) -> Any:
    """The certificate as it stands in its files at each handshake: whoever renews it there needs no restart."""

    def read() -> Any:
        pair = Path(chosen.key).read_bytes(), Path(chosen.certificate).read_bytes()
        return grpc.ssl_server_certificate_configuration([pair])

    return grpc.dynamic_ssl_server_credentials(read(), read, require_client_authentication=False)


def _generic_handlers(frontend: Frontend, guard: Guard | None) -> tuple[grpc.GenericRpcHandler, ...]:
    made = []
    for service, module in _SERVICES.items():
        methods = {
            name: grpc.unary_unary_rpc_method_handler(
                _served(name, handler, frontend.runs.manager, guard),
                request_deserializer=getattr(module, f"{name}Request").FromString,
                response_serializer=getattr(module, f"{name}Response").SerializeToString,
            )
            for name, handler in frontend.handlers().items()
            if hasattr(module, f"{name}Request")
        }
        made.append(grpc.method_handlers_generic_handler(service, methods))
    return tuple(made)


def _served(name: str, handler: Handler, manager: Manager, guard: Guard | None) -> Callable[[Any, Any], Awaitable[Any]]:
    log = structlog.get_logger("perdure.frontend").bind(rpc=name)

    async def serve_one(request: Any, context: Any) -> Any:
        call = Call(context.time_remaining(), tuple(context.invocation_metadata() or ()))
        try:
            await manager.learned()  # before, "not found" would be a guess
            namespace = namespace_of(name, request)
            if guard is not None:
                await guard.admit(name, namespace, call)
            _need_served(manager, namespace)
            response = await handler(request, call)
        except RpcError as error:
            await _abort(name, context, error)
        except UnfitError as error:
            await _abort(name, context, invalid(str(error)))
        except (api.ApiError, *api.TRANSIENT) as error:
            log.warning("The API server did not do its part", error=repr(error))
            await _abort(name, context, unavailable(str(error)))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            log.exception("An RPC has failed")
            await _abort(name, context, RpcError(grpc.StatusCode.INTERNAL, repr(error)))
        else:
            metrics.RPCS.labels(rpc=name, code="OK").inc()
            return response

    return serve_one


def _need_served(manager: Manager, namespace: str | None) -> None:
    if namespace and not manager.serves(namespace):
        raise namespace_not_found(namespace)


async def _abort(name: str, context: Any, error: RpcError) -> None:
    metrics.RPCS.labels(rpc=name, code=error.code.name).inc()
    if error.detail is not None:
        context.set_trailing_metadata(((_STATUS_DETAILS, error.status().SerializeToString()),))
    await context.abort(error.code, error.message)


def _health() -> grpc.GenericRpcHandler:
    """grpc.health.v1: that this process answers is what there is to know. The message is one enum, 1 for SERVING."""

    async def check(request: bytes, context: Any) -> bytes:  # noqa: ARG001 (gRPC's form)
        return b"\x08\x01"

    methods = {"Check": grpc.unary_unary_rpc_method_handler(check)}
    return grpc.method_handlers_generic_handler("grpc.health.v1.Health", methods)
