"""Objects of a real cluster, without starting kubectl for each request, which takes much more time."""

import json
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kubernetes import config
from kubernetes.client import ApiClient, ApiException

from perdure.runtime import status_encoding

Json = dict[str, Any]

NOT_FOUND = 404
_SELECTORS = {"-l": "labelSelector", "--selector": "labelSelector", "--field-selector": "fieldSelector"}


class Objects:
    """Reads and writes objects by the names that kubectl knows their kinds by. Runs have values in place of texts."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client: ApiClient = config.new_client_from_config(str(kubeconfig))
        self._kinds = self._discover()

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """One object; None if it does not exist."""
        try:
            return self._ask("GET", self._one(kind, namespace, name))
        except ApiException as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def list(self, kind: str, namespace: str, *selectors: str) -> list[Json]:
        """The objects that selectors pick, which are written as for kubectl."""
        answer = self._ask("GET", self._path(kind, namespace), **_query(selectors))
        same = {"apiVersion": answer["apiVersion"], "kind": answer["kind"].removesuffix("List")}
        return [status_encoding.decode({**same, **item}) for item in answer["items"]]

    def create(self, namespace: str, manifest: Json, **query: str) -> Json:
        """Create an object, and return it as it is stored.

        Raises:
            ApiException: The API server rejects it.
        """
        return self._ask("POST", self._place(namespace, manifest), manifest, fieldValidation="Strict", **query)

    def apply(self, namespace: str, manifest: Json, **query: str) -> Json:
        """Create or update an object from its manifest, as `kubectl apply --server-side` does.

        Raises:
            ApiException: The API server rejects it.
        """
        path = f"{self._place(namespace, manifest)}/{quote(manifest['metadata']['name'])}"
        how = {"fieldManager": "tests", "force": "true", "fieldValidation": "Strict"}
        return self._ask("PATCH", path, manifest, **how, **query)

    def patch(self, kind: str, namespace: str, name: str, change: Json, *, subresource: str = "", **query: str) -> Json:
        """Change an object, or a subresource of it, by a merge patch.

        Raises:
            ApiException: The API server rejects it.
        """
        path = f"{self._one(kind, namespace, name)}/{subresource}".rstrip("/")
        return self._ask("PATCH", path, change, merge=True, **query)

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Request the deletion of an object, if it exists; it may exist for a while."""
        try:
            self._ask("DELETE", self._one(kind, namespace, name), propagationPolicy="Background")
        except ApiException as error:
            if error.status != NOT_FOUND:
                raise

    def _place(self, namespace: str, manifest: Json) -> str:
        """Where objects of the kind of a manifest are."""
        group, _, version = manifest["apiVersion"].rpartition("/")
        kind = manifest["kind"].lower()
        return self._path(f"{kind}.{version}.{group}" if group else kind, namespace)

    def _one(self, kind: str, namespace: str, name: str) -> str:
        return f"{self._path(kind, namespace)}/{quote(name)}"

    def _path(self, kind: str, namespace: str) -> str:
        if kind.lower() not in self._kinds:  # it may have been created since
            self._kinds = self._discover()
        group, plural, namespaced = self._kinds[kind.lower()]
        return f"{group}/namespaces/{namespace}/{plural}" if namespaced else f"{group}/{plural}"

    def _ask(self, method: str, path: str, body: Json | None = None, *, merge: bool = False, **query: str) -> Json:
        content: str = "application/json"
        sent: Any = body
        if method == "PATCH" and merge:
            content = "application/merge-patch+json"
        elif method == "PATCH":
            content, sent = "application/apply-patch+yaml", json.dumps(body, ensure_ascii=False)
        request = self._client.param_serialize(
            method,
            path,
            query_params=[*query.items()],
            header_params={"Accept": "application/json", "Content-Type": content},
            body=sent,
            auth_settings=["BearerToken"],
        )
        response = self._client.call_api(*request, _request_timeout=60)
        response.read()
        if response.status >= HTTPStatus.BAD_REQUEST:
            raise ApiException(http_resp=response)
        answer: Json = json.loads(response.data)
        return status_encoding.decode(answer)

    def _discover(self) -> dict[str, tuple[str, str, bool]]:
        """The path of each kind. If several groups have a kind of that name, the core group comes first, and of the versions of a
        group the preferred one."""
        found: dict[str, tuple[str, str, bool]] = {}
        groups = [("/api/v1", "v1", "")]
        for group in self._ask("GET", "/apis")["groups"]:
            versions = (group["preferredVersion"], *group["versions"])
            groups += [(f"/apis/{each['groupVersion']}", each["version"], group["name"]) for each in versions]
        for path, version, group in groups:
            for resource in self._ask("GET", path)["resources"]:
                plural = resource["name"]
                names = {plural, resource["singularName"], resource["kind"].lower(), *resource.get("shortNames", ())}
                for name in names if "/" not in plural else ():
                    for spelt in (name, f"{name}.{group}", f"{name}.{version}.{group}"):
                        found.setdefault(spelt, (path, plural, resource["namespaced"]))
        return found


def refusal(error: ApiException) -> str:
    """The message of the API server about a rejected request."""
    return str(json.loads(error.body)["message"])


def _query(selectors: tuple[str, ...]) -> dict[str, str]:
    """Query parameters for flags such as ``-l app=web`` or ``--field-selector=a.b=c``; a short flag precedes its value."""
    query: dict[str, str] = {}
    rest = list(selectors)
    while rest:
        flag, _, value = rest.pop(0).partition("=")
        query[_SELECTORS[flag]] = value or rest.pop(0)
    return query


@cache
def objects(kubeconfig: Path) -> Objects:
    """The objects of a cluster."""
    return Objects(kubeconfig)
