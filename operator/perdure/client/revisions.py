"""Reads the WorkflowRevisions of a Workflow, and changes the Workflow back to one of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.api.labels import API_VERSION
from perdure.api.phases import CLOSED
from perdure.client.errors import ClientError, NotFoundError
from perdure.kube import paths

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.client.requests import Object, Requests


@dataclass(frozen=True, slots=True)
class RevisionHistory:
    """The revisions of a Workflow."""

    workflow: str
    revisions: Sequence[Object]
    """Its WorkflowRevisions, the newest number first."""
    current: str = ""
    """Name of the revision of the definition that it has now; empty if that is not stored, or the Workflow does not exist."""

    def find(self, wanted: str) -> Object:
        """Find a revision by its number or name.

        Raises:
            ClientError: There is none, or there are several with this number.
        """
        of_number = [each for each in self.revisions if wanted == str(each["spec"].get("number"))]
        found = [each for each in self.revisions if each["metadata"]["name"] == wanted] or of_number
        if len(found) > 1:
            names = " and ".join(f"`{each['metadata']['name']}`" for each in found)
            raise ClientError(
                f"{names} have the number {wanted}, because two operators stored them at the same time; pass the name"
            )
        if not found:
            known = ", ".join(str(each["spec"].get("number")) for each in self.revisions) or "none"
            raise NotFoundError(f"Workflow `{self.workflow}` has no revision `{wanted}`; it has: {known}")
        return found[0]

    def previous(self) -> Object:
        """The newest revision apart from the current one.

        Raises:
            ClientError: There is none.
        """
        for each in self.revisions:
            if each["metadata"]["name"] != self.current:
                return each
        raise ClientError(f"Workflow `{self.workflow}` has no earlier revision")


class ClusterRevisions:
    """The revisions of Workflows in a namespace."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    async def history(self, workflow: str) -> RevisionHistory:
        """Read the revisions of a Workflow, which may have been deleted.

        Raises:
            NotFoundError: There is neither the Workflow nor a revision of it.
            ClientError: They cannot be read.
        """
        selector = f"spec.workflow={paths.escaped(workflow)}"
        namespace = self._requests.namespace
        found = await self._requests.list_objects("workflowrevisions", namespace, fieldSelector=selector)
        found.sort(key=lambda each: (each["spec"].get("number", 0), each["metadata"]["name"]), reverse=True)
        try:
            owner = await self.workflow(workflow)
        except NotFoundError:
            if not found:
                raise
            return RevisionHistory(workflow, found)
        return RevisionHistory(workflow, found, str((owner.get("status") or {}).get("revision") or ""))

    async def workflow(self, name: str) -> Object:
        """Read a Workflow.

        Raises:
            NotFoundError: It does not exist.
            ClientError: It cannot be read.
        """
        return await self._requests.read("Workflow", "workflows", name)

    async def runs(self, workflow: str) -> dict[str, tuple[int, int]]:
        """Count the open and the closed runs of a Workflow by the name of their revision.

        Raises:
            ClientError: The runs cannot be read.
        """
        selector = f"spec.workflow.name={paths.escaped(workflow)}"
        rows = await self._requests.list_rows(
            "workflowruns", self._requests.namespace, metadata=False, fieldSelector=selector
        )
        counted: dict[str, Counter[bool]] = {}
        for row in rows:
            counted.setdefault(str(row.cells.get("Revision") or ""), Counter())[row.cells.get("Phase") in CLOSED] += 1
        return {name: (found[False], found[True]) for name, found in counted.items()}

    async def name_of(self, workflow: str, wanted: str) -> str:
        """The name of a revision of a Workflow, by its number or name.

        Raises:
            ClientError: There is none, or the revisions cannot be read.
        """
        return str((await self.history(workflow)).find(wanted)["metadata"]["name"])

    async def roll_back(self, workflow: str, spec: Object) -> None:
        """Give a Workflow a spec, or create it again with the spec.

        Raises:
            ClientError: The Workflow cannot be read or written.
        """
        requests = self._requests
        try:
            found = await self.workflow(workflow)
        except NotFoundError:
            body = {"apiVersion": API_VERSION, "kind": "Workflow", "metadata": {"name": workflow}, "spec": spec}
            url = paths.path(paths.PERDURE, requests.namespace, "workflows")
            await requests.perform(requests.client.create(url, body))
            return
        url = requests.path("Workflow", "workflows", workflow)
        await requests.perform(requests.client.replace(url, {**found, "spec": spec}), workflow, "Workflow")


def written(revision: Object) -> Object:
    """The definition of a revision as its Workflow had it."""
    spec = revision["spec"]
    found: Object = spec.get("written") or spec["definition"]
    return found
