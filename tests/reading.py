"""Reading objects of a real cluster without starting kubectl for each: tests look again and again until they see something."""

import json
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kubernetes import config
from kubernetes.client import ApiClient, ApiException

Json = dict[str, Any]

OK, NOT_FOUND = 200, 404
_SELECTORS = {"-l": "labelSelector", "--selector": "labelSelector", "--field-selector": "fieldSelector"}


class Reader:
    """Gets and lists objects by the names that kubectl knows their kinds by."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client: ApiClient = config.new_client_from_config(str(kubeconfig))
        self._kinds = self._discover()

    def get(self, kind: str, namespace: str, name: str) -> Json | None:
        """One object; None if there is none."""
        try:
            return self._ask(f"{self._path(kind, namespace)}/{quote(name)}")
        except ApiException as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def list(self, kind: str, namespace: str, *selectors: str) -> list[Json]:
        """The objects that selectors pick, which are written as for kubectl."""
        answer = self._ask(self._path(kind, namespace), **_query(selectors))
        same = {"apiVersion": answer["apiVersion"], "kind": answer["kind"].removesuffix("List")}
        return [{**same, **item} for item in answer["items"]]

    def _path(self, kind: str, namespace: str) -> str:
        if kind.lower() not in self._kinds:  # it may have come since
            self._kinds = self._discover()
        group, plural, namespaced = self._kinds[kind.lower()]
        return f"{group}/namespaces/{namespace}/{plural}" if namespaced else f"{group}/{plural}"

    def _ask(self, path: str, **query: str) -> Json:
        request = self._client.param_serialize(
            "GET",
            path,
            query_params=[*query.items()],
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        response = self._client.call_api(*request, _request_timeout=60)
        response.read()
        if response.status != OK:
            raise ApiException(http_resp=response)
        answer: Json = json.loads(response.data)
        return answer

    def _discover(self) -> dict[str, tuple[str, str, bool]]:
        """Where the objects of each kind are; of several groups that have a name, the core's comes first."""
        found: dict[str, tuple[str, str, bool]] = {}
        groups = [("/api/v1", "v1", "")]
        for group in self._ask("/apis")["groups"]:
            version = group["preferredVersion"]
            groups.append((f"/apis/{version['groupVersion']}", version["version"], group["name"]))
        for path, version, group in groups:
            for resource in self._ask(path)["resources"]:
                plural = resource["name"]
                names = {plural, resource["singularName"], resource["kind"].lower(), *resource.get("shortNames", ())}
                for name in names if "/" not in plural else ():
                    for spelt in (name, f"{name}.{group}", f"{name}.{version}.{group}"):
                        found.setdefault(spelt, (path, plural, resource["namespaced"]))
        return found


def _query(selectors: tuple[str, ...]) -> dict[str, str]:
    """What flags such as ``-l app=web`` or ``--field-selector=a.b=c`` ask for; a short one stands before its value."""
    query: dict[str, str] = {}
    rest = list(selectors)
    while rest:
        flag, _, value = rest.pop(0).partition("=")
        query[_SELECTORS[flag]] = value or rest.pop(0)
    return query


@cache
def reader(kubeconfig: Path) -> Reader:
    """One for each cluster."""
    return Reader(kubeconfig)
