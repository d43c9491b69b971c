"""The registered search attributes of each namespace, and the RPCs about them. Names and types are stored in a ConfigMap."""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime, timedelta

from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    AddSearchAttributesResponse,
    ListSearchAttributesRequest,
    ListSearchAttributesResponse,
    RemoveSearchAttributesRequest,
    RemoveSearchAttributesResponse,
)
from temporalio.api.workflowservice.v1 import GetSearchAttributesRequest, GetSearchAttributesResponse

from perdure.api import labels
from perdure.api.search_attributes import REGISTRY, unfit
from perdure.controller.state_versions import state_versions
from perdure.frontend.errors import invalid, namespace_not_found, unavailable
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.values import UnfitError, from_enum, to_enum
from perdure.frontend.transport.rpc import DEFAULT_NAMESPACE, CallContext
from perdure.frontend.visibility.index import BUILT_IN, Visibility
from perdure.kube import client as kube
from perdure.kube.clock import now

_FRESH = timedelta(seconds=10)
"""How long a cached ConfigMap is used: changes by `kubectl` or another operator take effect within this time."""
_TRIES = 20


class SearchAttributeRegistry:
    """Reads and writes the registered search attributes of namespaces."""

    def __init__(self, client: kube.Client, visibility: Visibility) -> None:
        """Create a registry.

        Args:
            client: The client of the API server.
            visibility: The index, which knows the search attributes that runs of Temporal SDK workers have in a namespace. An
                earlier version did not require them to be registered.
        """
        self._client = client
        self._visibility = visibility
        self._read: dict[str, tuple[datetime, dict[str, str]]] = {}

    async def types(self, namespace: str) -> dict[str, str]:
        """Return the type of each registered search attribute of a namespace.

        Raises:
            RpcError: The API server did not answer, and no earlier answer is known.
        """
        read, types = self._read.get(namespace, (None, {}))
        if read is not None and now() - read < _FRESH:
            return types
        try:
            return await self._change(namespace, lambda known: known)
        except kube.RequestError as error:
            if read is not None:
                return types
            raise unavailable(str(error)) from error

    async def filter_types(self, namespace: str) -> dict[str, str]:
        """Return the search attributes for filters in a namespace: the registered ones, and those of its runs."""
        return {**self._visibility.attribute_types(namespace), **await self.types(namespace)}

    def expire(self, namespace: str) -> None:
        """Read the search attributes of a namespace again at the next use."""
        read, types = self._read.get(namespace, (None, {}))
        if read is not None:
            self._read[namespace] = read - _FRESH, types

    async def add(self, namespace: str, added: Mapping[str, str]) -> None:
        """Register search attributes. As in Temporal, the type of a registered attribute does not change.

        Raises:
            RpcError: The namespace does not exist, or the API server refuses the names or does not answer.
        """
        await self._write(namespace, lambda known: {**added, **known})

    async def remove(self, namespace: str, removed: Collection[str]) -> None:
        """Remove search attributes. Runs keep their values.

        Raises:
            RpcError: The namespace does not exist, or the API server does not answer.
        """
        await self._write(namespace, lambda known: {name: known[name] for name in known if name not in set(removed)})

    async def _write(self, namespace: str, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        try:
            await self._change(namespace, change)
        except kube.NotFoundError:
            raise namespace_not_found(namespace) from None
        except (kube.InvalidError, kube.TooLargeError) as error:
            raise invalid(f"search_attributes: {error.message}") from error
        except kube.RequestError as error:
            raise unavailable(str(error)) from error

    async def _change(self, namespace: str, change: Callable[[dict[str, str]], dict[str, str]]) -> dict[str, str]:
        for _ in range(_TRIES):
            with suppress(kube.AlreadyExistsError, kube.ConflictError):
                self._read[namespace] = now(), await self._changed(namespace, change)
                return self._read[namespace][1]
        raise unavailable(f"ConfigMap {REGISTRY} changes too often")

    async def _changed(self, namespace: str, change: Callable[[dict[str, str]], dict[str, str]]) -> dict[str, str]:
        """Read the ConfigMap, and write it if anything changes."""
        client, url = self._client, kube.path(kube.CORE, namespace, "configmaps", REGISTRY)
        try:
            found = await client.get(url)
        except kube.NotFoundError:
            found = {}
        stored = found.get("data") or {}
        meta = found.get("metadata") or {"name": REGISTRY, "namespace": namespace}
        annotations = meta.get("annotations") or {}
        why = state_versions().unreadable_settings(meta)
        adopted = labels.ADOPTED_ANNOTATION in annotations or bool(why)
        types = change(stored if adopted else {**self._visibility.coded_types(namespace), **stored})
        usable = {name: kind for name, kind in types.items() if kind in data.ATTRIBUTE_TYPES}
        if types == stored and (adopted or not found):
            return usable
        if why:
            message = f"a newer version of Perdure has written ConfigMap {REGISTRY} ({why})"
            raise unavailable(f"{message}: this operator leaves it as it is")
        meta = {**meta, "annotations": {**annotations, labels.ADOPTED_ANNOTATION: "true"}}
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": state_versions().annotate(meta),
            "data": types,
        }
        if found:
            await client.replace(url, body)
        else:
            await client.create(kube.path(kube.CORE, namespace, "configmaps"), body)
        return usable


# RPCs


class SearchAttributeRpcs:
    """Lists, registers, and removes search attributes."""

    def __init__(self, registry: SearchAttributeRegistry) -> None:
        self._registry = registry

    async def list_search_attributes(
        self, request: ListSearchAttributesRequest, call: CallContext
    ) -> ListSearchAttributesResponse:
        """List the registered search attributes."""
        known = await self._registry.types(request.namespace or DEFAULT_NAMESPACE)
        custom = {name: kind for name, kind in known.items() if name not in BUILT_IN}
        response = ListSearchAttributesResponse()
        for target, types in (
            (response.custom_attributes, custom),
            (response.system_attributes, BUILT_IN),
        ):
            for name, kind in types.items():
                target[name] = to_enum(IndexedValueType, kind)
        return response

    async def get_search_attributes(
        self, request: GetSearchAttributesRequest, call: CallContext
    ) -> GetSearchAttributesResponse:
        """List the fields for filters, for all namespaces."""
        response = GetSearchAttributesResponse()
        for name, kind in BUILT_IN.items():
            response.keys[name] = to_enum(IndexedValueType, kind)
        return response

    async def add_search_attributes(
        self, request: AddSearchAttributesRequest, call: CallContext
    ) -> AddSearchAttributesResponse:
        """Register search attributes."""
        namespace = request.namespace or DEFAULT_NAMESPACE
        added = {name: from_enum(IndexedValueType, kind) for name, kind in request.search_attributes.items()}
        check_registered(added)
        await self._registry.add(namespace, added)
        return AddSearchAttributesResponse()

    async def remove_search_attributes(
        self, request: RemoveSearchAttributesRequest, call: CallContext
    ) -> RemoveSearchAttributesResponse:
        """Remove search attributes from the registry."""
        if not request.search_attributes:
            raise UnfitError("SearchAttributes are not set on request.")
        await self._registry.remove(request.namespace or DEFAULT_NAMESPACE, request.search_attributes)
        return RemoveSearchAttributesResponse()


def check_registered(types: Mapping[str, str]) -> None:
    """Check that search attributes can be registered.

    Args:
        types: The types by name, with Temporal's names.

    Raises:
        UnfitError: A search attribute cannot be registered.
    """
    if not types:
        raise UnfitError("SearchAttributes are not set on request.")
    for name, kind in types.items():
        if name in BUILT_IN:
            raise UnfitError(f"search_attributes: {name!r} is built in")
        wrong = unfit({name: ""}).get(name)
        if wrong is not None:
            raise UnfitError(f"search_attributes: {name[:63]!r} {wrong}")
        if kind not in data.ATTRIBUTE_TYPES:
            raise UnfitError(
                f"search_attributes: {name!r} must be of one of the types {', '.join(data.ATTRIBUTE_TYPES)}"
            )
