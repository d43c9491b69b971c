"""RPCs about the server and its namespaces."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from temporalio.api.enums.v1 import ArchivalState, NamespaceState
from temporalio.api.namespace.v1 import NamespaceInfo
from temporalio.api.workflowservice.v1 import (
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    GetClusterInfoRequest,
    GetClusterInfoResponse,
    GetSystemInfoRequest,
    GetSystemInfoResponse,
    ListNamespacesRequest,
    ListNamespacesResponse,
    UpdateNamespaceRequest,
    UpdateNamespaceResponse,
)

from perdure import __version__
from perdure.api.labels import API_VERSION
from perdure.api.names import DEFAULTS_NAME
from perdure.api.phases import Phase
from perdure.controller.namespaces import ServedNamespaces
from perdure.frontend.errors import invalid, namespace_not_found, unavailable
from perdure.frontend.messages.tokens import page_of
from perdure.frontend.messages.values import MAX_BLOB, MAX_MEMO, UnfitError, duration, to_enum
from perdure.frontend.transport.rpc import CallContext
from perdure.kube import client as kube
from perdure.runtime.retention import Policy

SERVER_VERSION = "1.32.0"
"""The version of Temporal's server whose behavior Perdure follows; some clients check it."""
_RETENTION: Final = "workflow_execution_retention_ttl"
_SHORTEST_RETENTION: Final = timedelta(hours=1)
_LONGEST_RETENTION: Final = timedelta(seconds=2**31 - 1)
_SECOND: Final = timedelta(seconds=1)
_TRIES: Final = 5
MAX_NAMESPACES = 1_000
"""Maximum number of namespaces in one response."""
_CLIENTS = {
    **dict.fromkeys(
        (
            "temporal-go",
            "temporal-java",
            "temporal-php",
            "temporal-typescript",
            "temporal-python",
            "temporal-dotnet",
            "temporal-ruby",
            "temporal-cli",
        ),
        "<2.0.0",
    ),
    "temporal-ui": "<3.0.0",
}
"""The supported clients of Temporal's server (common/headers/version_checker.go), and the other SDKs on sdk-core."""


class System:
    """Describes the server and its namespaces."""

    def __init__(self, client: kube.Client, served: ServedNamespaces, policy: Callable[[str], Policy]) -> None:
        """Create it.

        Args:
            client: Reads namespaces, and reads and writes their WorkflowDefaults.
            served: The served namespaces.
            policy: Returns how long a namespace keeps its runs, as the watch has shown it.
        """
        self._client = client
        self._served = served
        self._policy = policy

    async def get_system_info(self, request: GetSystemInfoRequest, call: CallContext) -> GetSystemInfoResponse:
        """Describe the capabilities of this server."""
        return GetSystemInfoResponse(
            server_version=SERVER_VERSION,
            capabilities=GetSystemInfoResponse.Capabilities(
                signal_and_query_header=True,
                internal_error_differentiation=True,
                activity_failure_include_heartbeat=True,
                supports_schedules=True,
                eager_workflow_start=True,
                encoded_failure_attributes=True,
                upsert_memo=True,
                build_id_based_versioning=True,
                sdk_metadata=True,
                count_group_by_execution_status=True,
                nexus=True,
            ),
        )

    async def get_cluster_info(self, request: GetClusterInfoRequest, call: CallContext) -> GetClusterInfoResponse:
        """Describe this cluster."""
        return GetClusterInfoResponse(
            server_version=SERVER_VERSION,
            cluster_id=self._client.access.server,
            cluster_name="perdure",
            history_shard_count=1,
            persistence_store="kubernetes",
            visibility_store=f"perdure {__version__}",
            supported_clients=_CLIENTS,
        )

    # Namespaces

    async def describe_namespace(
        self, request: DescribeNamespaceRequest, call: CallContext
    ) -> DescribeNamespaceResponse:
        """Describe a namespace of Kubernetes."""
        name = request.namespace or request.id
        return _namespace(await self._read(name), await self._read_policy(name))

    async def _read(self, name: str) -> kube.Object:
        """Read a namespace of Kubernetes.

        Raises:
            RpcError: It does not exist, or this operator does not serve it.
        """
        found = await self._find(name) if name in self._served else None
        if found is None:
            raise namespace_not_found(name)
        return found

    async def _read_policy(self, namespace: str) -> Policy:
        try:
            found = await self._client.get(_defaults_url(namespace, DEFAULTS_NAME))
        except kube.NotFoundError:
            return Policy()
        return Policy.of(found.get("spec") or {})

    async def update_namespace(self, request: UpdateNamespaceRequest, call: CallContext) -> UpdateNamespaceResponse:
        """Change how long the namespace keeps its closed runs. Everything else of a namespace belongs to Kubernetes."""
        found = await self._read(request.namespace)
        shown = _namespace(found, await self._read_policy(request.namespace))
        _check_unchanged(request, shown)
        if request.config.HasField(_RETENTION):
            ttl = timedelta(0)
            with suppress(UnfitError):
                ttl = duration(request.config, _RETENTION)
            if not _SHORTEST_RETENTION <= ttl <= _LONGEST_RETENTION:  # common/namespace, validateRetentionDuration
                raise invalid("A valid retention period is not set on request.")
            await self._keep(request.namespace, ttl)
            shown.config.workflow_execution_retention_ttl.FromTimedelta(timedelta(seconds=ttl // _SECOND))
        return UpdateNamespaceResponse(
            namespace_info=shown.namespace_info,
            config=shown.config,
            replication_config=shown.replication_config,
        )

    async def _keep(self, namespace: str, ttl: timedelta) -> None:
        """Write a time to live into the WorkflowDefaults of a namespace, and leave everything else in them as it is."""
        spec = {"retention": {"ttlSecondsAfterFinished": ttl // _SECOND}}
        body = {
            "apiVersion": API_VERSION,
            "kind": "WorkflowDefaults",
            "metadata": {"name": DEFAULTS_NAME, "namespace": namespace},
            "spec": spec,
        }
        for _ in range(_TRIES):
            with suppress(kube.NotFoundError):
                await self._client.merge(_defaults_url(namespace, DEFAULTS_NAME), {"spec": spec})
                return
            try:
                await self._client.create(_defaults_url(namespace), body)
            except kube.AlreadyExistsError:
                continue
            except kube.NotFoundError:
                raise namespace_not_found(namespace) from None
            return
        raise unavailable("the WorkflowDefaults of the namespace change too often")

    async def _find(self, name: str) -> kube.Object | None:
        """Find a namespace of Kubernetes; None if it does not exist."""
        try:
            return await self._client.get(kube.path(kube.CORE, None, "namespaces", name))
        except (kube.NotFoundError, ValueError):
            return None
        except kube.RequestError as error:
            raise unavailable(str(error)) from error

    async def list_namespaces(self, request: ListNamespacesRequest, call: CallContext) -> ListNamespacesResponse:
        """List the served namespaces that the caller may describe, by name."""
        found = await self._read_served()
        page, token = page_of(
            await call.visible(sorted(found)), request.next_page_token, request.page_size, MAX_NAMESPACES
        )
        listed = [found[name] or await self._find(name) for name in page]
        return ListNamespacesResponse(
            namespaces=[
                _namespace(each, self._policy(each["metadata"]["name"])) for each in listed if each is not None
            ],
            next_page_token=token,
        )

    async def _read_served(self) -> dict[str, kube.Object | None]:
        """The served namespaces by name; None: not yet read."""
        served = self._served
        if served.names:  # the operator's Roles allow it to read these namespaces, but not to list any
            return dict.fromkeys(name for name in served.names if name in served)
        try:
            found = await self._client.lists.all(kube.path(kube.CORE, None, "namespaces"))
        except kube.RequestError as error:
            raise unavailable(str(error)) from error
        return {each["metadata"]["name"]: each for each in found if each["metadata"]["name"] in served}


def _defaults_url(namespace: str, name: str | None = None) -> str:
    return kube.path(kube.PERDURE, namespace, "workflowdefaults", name)


def _namespace(namespace: kube.Object, policy: Policy) -> DescribeNamespaceResponse:
    """Describe a namespace of Kubernetes, with the time for which its completed runs are kept.

    Temporal has one time for all outcomes and all workflow types.
    """
    meta = namespace["metadata"]
    leaving = bool(meta.get("deletionTimestamp"))
    info = NamespaceInfo(
        name=meta["name"],
        id=meta["uid"],
        state=to_enum(NamespaceState, "Deleted" if leaving else "Registered"),
        description="a namespace of Kubernetes",
        capabilities=NamespaceInfo.Capabilities(
            eager_workflow_start=True,
            sync_update=True,
            async_update=True,
            worker_heartbeats=True,
            standalone_activities=True,
            standalone_nexus_operation=True,
            workflow_update_callbacks=True,
            standalone_activity_start_delay=True,
            standalone_activity_operator_commands=True,
            standalone_activity_batch_operations=True,
        ),
        limits=NamespaceInfo.Limits(blob_size_limit_error=MAX_BLOB, memo_size_limit_error=MAX_MEMO),
        supports_schedules=True,
    )
    response = DescribeNamespaceResponse(namespace_info=info)
    response.config.workflow_execution_retention_ttl.FromTimedelta(timedelta(seconds=policy.ttl("", Phase.COMPLETED)))
    response.config.bad_binaries.SetInParent()
    response.config.history_archival_state = ArchivalState.ARCHIVAL_STATE_DISABLED
    response.config.visibility_archival_state = ArchivalState.ARCHIVAL_STATE_DISABLED
    response.replication_config.active_cluster_name = "perdure"
    response.replication_config.clusters.add(cluster_name="perdure")
    return response


def _check_unchanged(request: UpdateNamespaceRequest, shown: DescribeNamespaceResponse) -> None:
    """Accept only changes of the retention. Clients also send back what they have read.

    Raises:
        RpcError: The request changes something else.
    """
    parts = (
        ("update_info", request.update_info, shown.namespace_info),
        ("config", request.config, shown.config),
        ("replication_config", request.replication_config, shown.replication_config),
    )
    changed = [
        f"{part}.{field.name}"
        for part, wanted, known in parts
        for field, value in wanted.ListFields()
        if field.name != _RETENTION and value != getattr(known, field.name)
    ]
    changed += [name for name in ("delete_bad_binary", "promote_namespace") if getattr(request, name)]
    if changed:
        raise invalid(
            f"{changed[0]} cannot be changed: the namespace is one of Kubernetes. Only config.{_RETENTION} can be set here"
        )
