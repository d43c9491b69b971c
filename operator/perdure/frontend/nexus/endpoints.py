"""Nexus endpoints and the RPCs of administrators about them. An endpoint is a name for a task queue of a namespace.

Endpoints are stored, with the namespaces that may call them, in one ConfigMap in the operator's own namespace: anyone who can
write there decides which namespace can call which other one.
"""

import re
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import msgspec
import structlog
from temporalio.api.nexus.v1 import Endpoint as ProtoEndpoint
from temporalio.api.nexus.v1 import EndpointSpec
from temporalio.api.operatorservice.v1 import (
    CreateNexusEndpointRequest,
    CreateNexusEndpointResponse,
    DeleteNexusEndpointRequest,
    DeleteNexusEndpointResponse,
    GetNexusEndpointRequest,
    GetNexusEndpointResponse,
    ListNexusEndpointsRequest,
    ListNexusEndpointsResponse,
    UpdateNexusEndpointRequest,
    UpdateNexusEndpointResponse,
)

from perdure.api.stored import StoredStruct, decode_known, is_known
from perdure.controller.namespaces import ServedNamespaces
from perdure.controller.state_versions import state_versions
from perdure.frontend.errors import exists, invalid, not_found, precondition, unavailable
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages import values
from perdure.frontend.transport.rpc import CallContext
from perdure.kube import client as kube
from perdure.kube.clock import now

CONFIG_MAP = "perdure-nexus-endpoints"
"""Name of the ConfigMap."""
CALLERS_HEADER = "perdure-allowed-callers"
"""gRPC metadata of CreateNexusEndpoint and UpdateNexusEndpoint: other namespaces that may call it, separated by commas."""
ANYONE = "*"
"""Stands for every namespace in the list of callers."""
_FRESH = timedelta(seconds=10)
"""How long a cached ConfigMap is used: an edit with `kubectl` takes effect within this time."""
_TRIES = 20
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9\-]*[a-zA-Z0-9]")
_MAX_NAME, _MAX_DESCRIPTION = 200, 20_000
_PAGE, _MAX_PAGE = 100, 1_000
_log = structlog.get_logger("perdure.frontend.nexus.endpoints")


class Endpoint(StoredStruct, frozen=True, kw_only=True):
    """A Nexus endpoint, stored as JSON under its name in the ConfigMap."""

    id: str
    version: int = 1
    namespace: str
    """The namespace whose workers handle the operations."""
    task_queue: str
    allowed_callers: tuple[str, ...] = ()
    """Other namespaces whose workflows may call it."""
    description: Any = None
    created_time: datetime
    last_modified_time: datetime | None = None

    def admits(self, namespace: str) -> bool:
        """Whether workflows of a namespace may call it."""
        return namespace == self.namespace or namespace in self.allowed_callers or ANYONE in self.allowed_callers


Endpoints = Mapping[str, Endpoint]
"""The endpoints by name."""


class EndpointRegistry:
    """Reads and writes the endpoints."""

    def __init__(self, client: kube.Client, namespace: str) -> None:
        """Create a registry.

        Args:
            client: The client of the API server.
            namespace: The namespace of the operator.
        """
        self._client = client
        self._namespace = namespace
        self._read: tuple[datetime, dict[str, Endpoint]] | None = None

    async def all(self) -> Endpoints:
        """Return all endpoints.

        Raises:
            RpcError: The API server did not answer, and no earlier answer is known.
        """
        if self._read is not None and now() - self._read[0] < _FRESH:
            return self._read[1]
        try:
            found = await self._get()
        except kube.RequestError as error:
            if self._read is not None:
                return self._read[1]
            raise unavailable(str(error)) from error
        return self._known(_decoded(found))

    async def find(self, endpoint_id: str, name: str = "") -> tuple[str, Endpoint] | None:
        """Return an endpoint by its ID or, if it was re-created, by its name. None if there is none."""
        return _find(await self.all(), endpoint_id, name)

    def expire(self) -> None:
        """Read the endpoints again at the next use."""
        if self._read is not None:
            self._read = self._read[0] - _FRESH, self._read[1]

    def known(self, endpoint_id: str, name: str) -> Endpoint | None:
        """Return a cached endpoint, found like by `find`. None if there is none, or nothing was read yet."""
        found = _find(self._read[1], endpoint_id, name) if self._read is not None else None
        return found[1] if found is not None else None

    async def create(self, name: str, namespace: str, task_queue: str, **fields: Any) -> Endpoint:
        """Create an endpoint.

        Raises:
            RpcError: The name is in use, or the API server does not respond.
        """
        made = Endpoint(id=str(uuid.uuid4()), namespace=namespace, task_queue=task_queue, created_time=now(), **fields)

        def add(known: dict[str, Endpoint]) -> dict[str, Endpoint]:
            if name in known:
                raise exists(f"error creating Nexus endpoint. Endpoint with name {name} already registered")
            return {**known, name: made}

        await self._change(add)
        return made

    async def update(self, endpoint_id: str, version: int, name: str, **fields: Any) -> Endpoint:
        """Change an endpoint.

        Raises:
            RpcError: The endpoint does not exist or has another version, or the API server does not respond.
        """

        def change(known: dict[str, Endpoint]) -> dict[str, Endpoint]:
            before = _by_id(known, endpoint_id, "error updating Nexus endpoint. endpoint ID {} not found")
            if known[before].version != version:
                raise precondition(
                    f"nexus endpoint version mismatch. received: {version} expected {known[before].version}"
                )
            if name != before and name in known:
                raise exists(f"error updating Nexus endpoint. Endpoint with name {name} already registered")
            changed = msgspec.structs.replace(known[before], version=version + 1, last_modified_time=now(), **fields)
            return {**{each: known[each] for each in known if each != before}, name: changed}

        return (await self._change(change))[name]

    async def delete(self, endpoint_id: str) -> None:
        """Delete an endpoint. Started operations continue, but no further ones start.

        Raises:
            RpcError: The endpoint does not exist, or the API server does not respond.
        """

        def remove(known: dict[str, Endpoint]) -> dict[str, Endpoint]:
            gone = _by_id(known, endpoint_id, "error deleting nexus endpoint with ID: {}")
            return {each: known[each] for each in known if each != gone}

        await self._change(remove)

    async def _change(self, change: Callable[[dict[str, Endpoint]], dict[str, Endpoint]]) -> Endpoints:
        try:
            for _ in range(_TRIES):
                with suppress(kube.AlreadyExistsError, kube.ConflictError):
                    return await self._changed(change)
        except (kube.InvalidError, kube.TooLargeError) as error:
            raise precondition(f"the endpoints cannot be stored: {error.message}") from error
        except kube.RequestError as error:
            raise unavailable(str(error)) from error
        raise unavailable(f"ConfigMap {CONFIG_MAP} changes too often")

    async def _changed(self, change: Callable[[dict[str, Endpoint]], dict[str, Endpoint]]) -> Endpoints:
        found = await self._get()
        stored, meta = found.get("data") or {}, found.get("metadata") or {}
        if why := state_versions().unreadable_settings(meta):
            message = f"a newer version of Perdure has written ConfigMap {CONFIG_MAP} ({why})"
            raise unavailable(f"{message}: this operator leaves it as it is")
        before = _decoded(found)
        after = change(before)
        newer = {each.id for name, each in before.items() if not is_known(stored[name], Endpoint)}
        changed = {name: each for name, each in after.items() if before.get(name) != each}
        for name in (name for name, each in changed.items() if each.id in newer):
            raise unavailable(
                f"a newer version of Perdure has written endpoint '{name}': this operator leaves it as it is"
            )
        # Keep an invalid entry, so that its author can fix it.
        kept = {name: value for name, value in stored.items() if name not in before or name in after}
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": state_versions().annotate(meta or {"name": CONFIG_MAP, "namespace": self._namespace}),
            "data": {**kept, **{name: msgspec.json.encode(each).decode() for name, each in changed.items()}},
        }
        if found:
            await self._client.replace(self._url(CONFIG_MAP), body)
        else:
            await self._client.create(self._url(), body)
        return self._known(after)

    async def _get(self) -> kube.Object:
        try:
            return await self._client.get(self._url(CONFIG_MAP))
        except kube.NotFoundError:
            return {}

    def _url(self, name: str | None = None) -> str:
        return kube.path(kube.CORE, self._namespace, "configmaps", name)

    def _known(self, endpoints: dict[str, Endpoint]) -> Endpoints:
        self._read = now(), endpoints
        return endpoints


def _find(known: Endpoints, endpoint_id: str, name: str) -> tuple[str, Endpoint] | None:
    for each, endpoint in known.items():
        if endpoint.id == endpoint_id:
            return each, endpoint
    return (name, known[name]) if name in known else None


def _by_id(known: Endpoints, endpoint_id: str, message: str) -> str:
    for name, endpoint in known.items():
        if endpoint.id == endpoint_id:
            return name
    raise not_found(message.format(endpoint_id))


def _decoded(config_map: kube.Object) -> dict[str, Endpoint]:
    """Decode the endpoints of a ConfigMap. An invalid endpoint is logged, and admits nobody."""
    endpoints = {}
    for name, value in (config_map.get("data") or {}).items():
        try:
            endpoints[name] = decode_known(value, Endpoint)
        except msgspec.MsgspecError as error:
            _log.warning("A Nexus endpoint cannot be read", endpoint=name, error=str(error))
    return endpoints


# RPCs


class NexusEndpoints:
    """Creates, changes, deletes, and shows endpoints."""

    def __init__(self, endpoints: EndpointRegistry, served: ServedNamespaces) -> None:
        self._endpoints = endpoints
        self._served = served

    async def create_nexus_endpoint(
        self, request: CreateNexusEndpointRequest, call: CallContext
    ) -> CreateNexusEndpointResponse:
        """Create an endpoint. Only workflows of its own namespace may call it, unless the caller says which others may."""
        named, fields = self._spec(request.spec, call)
        made = await self._endpoints.create(named, **fields)
        return CreateNexusEndpointResponse(endpoint=_endpoint(named, made))

    async def update_nexus_endpoint(
        self, request: UpdateNexusEndpointRequest, call: CallContext
    ) -> UpdateNexusEndpointResponse:
        """Change an endpoint. Its callers stay the same unless the caller names others."""
        _check_id(request.id)
        if request.version <= 0:
            raise invalid("endpoint version is non-positive")
        named, fields = self._spec(request.spec, call)
        changed = await self._endpoints.update(request.id, request.version, named, **fields)
        return UpdateNexusEndpointResponse(endpoint=_endpoint(named, changed))

    async def delete_nexus_endpoint(
        self, request: DeleteNexusEndpointRequest, call: CallContext
    ) -> DeleteNexusEndpointResponse:
        """Delete an endpoint."""
        _check_id(request.id)
        if request.version <= 0:
            raise invalid("endpoint version is non-positive")
        await self._endpoints.delete(request.id)
        return DeleteNexusEndpointResponse()

    async def get_nexus_endpoint(self, request: GetNexusEndpointRequest, call: CallContext) -> GetNexusEndpointResponse:
        """Return one endpoint."""
        _check_id(request.id)
        found = await self._endpoints.find(request.id)
        if found is None:
            raise not_found(f"Nexus endpoint with ID `{request.id}` not found")
        return GetNexusEndpointResponse(endpoint=_endpoint(*found))

    async def list_nexus_endpoints(
        self, request: ListNexusEndpointsRequest, call: CallContext
    ) -> ListNexusEndpointsResponse:
        """List all endpoints, or the endpoint with a name."""
        known = await self._endpoints.all()
        after = request.next_page_token.decode(errors="replace")
        if after and not values.is_uuid(after):
            raise invalid("next_page_token: is not one that this server has returned")
        if request.name:
            return ListNexusEndpointsResponse(
                endpoints=[_endpoint(n, e) for n, e in known.items() if n == request.name]
            )
        if request.page_size < 0:
            raise invalid("page_size is negative")
        if request.page_size > _MAX_PAGE:
            raise invalid(f"page_size exceeds limit of {_MAX_PAGE}")
        # In the order of Temporal's server, by ID, so that a deletion between two pages changes nothing.
        found = sorted(((n, e) for n, e in known.items() if e.id > after), key=lambda each: each[1].id)
        page = found[: request.page_size or _PAGE]
        response = ListNexusEndpointsResponse(endpoints=[_endpoint(*each) for each in page])
        if len(page) < len(found):
            response.next_page_token = page[-1][1].id.encode()
        return response

    def _spec(self, spec: EndpointSpec, call: CallContext) -> tuple[str, dict[str, Any]]:
        """The name and the fields of an endpoint.

        Raises:
            RpcError: The endpoint is not valid.
        """
        issues = _name_issues(spec.name)
        target = spec.target.worker
        match spec.target.WhichOneof("variant"):
            case "worker":
                if not target.namespace:
                    issues.append("target namespace not set")
                elif target.namespace not in self._served:
                    missing = f"Namespace {target.namespace} is not found."
                    raise precondition(f"could not verify namespace referenced by target exists: {missing}")
                if not target.task_queue or len(target.task_queue) > values.MAX_ID:
                    issues.append('invalid target task queue: "taskQueue is not set, or its length exceeds limit"')
            case "external":
                issues.append("external endpoints are not supported: the target must be a namespace and a task queue")
            case _:
                issues.append("empty target variant")
        if spec.description.ByteSize() > _MAX_DESCRIPTION:
            issues.append(f"description size exceeds limit of {_MAX_DESCRIPTION}")
        if issues:
            raise invalid(", ".join(issues))
        description = data.one_to_json(spec.description) if spec.HasField("description") else None
        fields = {"namespace": target.namespace, "task_queue": target.task_queue, "description": description}
        headers = [str(value) for key, value in call.metadata if key == CALLERS_HEADER]
        if headers:
            callers = (each.strip() for each in ",".join(headers).split(","))
            fields["allowed_callers"] = tuple(filter(None, callers))
        return spec.name, fields


def _name_issues(named: str) -> list[str]:
    if not named:
        return ["endpoint name not set"]
    issues = []
    if len(named) > _MAX_NAME:
        issues.append(f"endpoint name exceeds length limit of {_MAX_NAME}")
    if not _NAME.fullmatch(named):
        issues.append('endpoint name must match the regex: "^[a-zA-Z][a-zA-Z0-9\\\\-]*[a-zA-Z0-9]$"')
    return issues


def _check_id(endpoint_id: str) -> None:
    if not endpoint_id:
        raise invalid("endpoint ID not set")
    if not values.is_uuid(endpoint_id):
        raise invalid(f'malformed endpoint ID: "{endpoint_id[:63]}"')


def _endpoint(named: str, endpoint: Endpoint) -> ProtoEndpoint:
    made = ProtoEndpoint(
        id=endpoint.id, version=endpoint.version, url_prefix=f"/nexus/endpoints/{endpoint.id}/services"
    )
    made.spec.name = named
    made.spec.target.worker.namespace = endpoint.namespace
    made.spec.target.worker.task_queue = endpoint.task_queue
    if endpoint.description is not None:
        made.spec.description.CopyFrom(data.one_payload(endpoint.description))
    made.created_time.FromDatetime(endpoint.created_time)
    if endpoint.last_modified_time is not None:
        made.last_modified_time.FromDatetime(endpoint.last_modified_time)
    return made
