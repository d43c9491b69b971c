"""The WorkflowRevisions with the activities of versions of workers: found when a version starts, and kept while it exists."""

from collections import OrderedDict
from contextlib import suppress
from http import HTTPStatus
from typing import Final

from perdure.api.kinds.workerdeployment import WorkerDeploymentSpec
from perdure.api.labels import WORKER_DEPLOYMENT_LABEL, WORKER_VERSION_LABEL
from perdure.api.names import label_value
from perdure.controller.workflows.revisions import is_marked, unmark
from perdure.engine.versioning import DeploymentVersion
from perdure.kube import client as kube
from perdure.runtime.workers import activities

_MAX_KNOWN: Final = 1_000


class ActivitiesNotReadyError(Exception):
    """The activities of a version cannot be used yet; the message says why."""


class VersionActivities:
    """Finds the revisions with the activities of versions of workers."""

    def __init__(self, client: kube.Client) -> None:
        self._client = client
        self._known: OrderedDict[tuple[str, str], dict[str, str]] = OrderedDict()
        """The revisions of versions with a Deployment, which never change, by namespace and version."""

    async def find(self, namespace: str, spec: WorkerDeploymentSpec) -> dict[str, str]:
        """Return the revisions for a version that gets its Deployment now, by Workflow; none if it names no activities.

        Raises:
            ActivitiesNotReadyError: A Workflow does not exist, has other activities, or is not ready.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        found = {}
        for workflow, hashed in activities.wanted(spec).items():
            try:
                obj = await self._client.get(kube.path(kube.PERDURE, namespace, "workflows", workflow))
            except kube.NotFoundError:
                message = f"Workflow `{workflow}`, which has its activities, does not exist: apply both together"
                raise ActivitiesNotReadyError(message) from None
            name, why = activities.revision_of(obj, hashed)
            if why:
                raise ActivitiesNotReadyError(why)
            if name:
                found[workflow] = name
        return found

    async def hold(self, deployment: kube.Object) -> None:
        """Keep the revisions that a Deployment names, which must exist already.

        One that was marked as unused before the Deployment existed would be deleted otherwise.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        namespace = deployment["metadata"]["namespace"]
        for name in activities.revisions_of(deployment).values():
            url = kube.path(kube.PERDURE, namespace, "workflowrevisions", name)
            with suppress(kube.NotFoundError):
                meta = (await self._client.metadata(url))["metadata"]
                while is_marked(meta) and not await unmark(self._client, meta):
                    meta = (await self._client.metadata(url))["metadata"]

    async def revision(self, namespace: str, version: DeploymentVersion, workflow: str) -> str:
        """Return the name of the revision with the activities of a Workflow for a version; empty if it names none.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        if any(label_value(each) != each for each in (version.deployment_name, version.build_id)):
            return ""  # no Deployment has such a label
        key = namespace, str(version)
        known = self._known.get(key)
        if known is None:
            selector = f"{WORKER_DEPLOYMENT_LABEL}={version.deployment_name},{WORKER_VERSION_LABEL}={version.build_id}"
            found = await self._deployments(namespace, selector)
            if not found:
                return ""
            known = self._known[key] = activities.revisions_of(found[0])
            if len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
        return known.get(workflow, "")

    async def uses(self, namespace: str, name: str) -> bool:
        """Whether a version with a Deployment needs a revision.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        found = await self._deployments(namespace, WORKER_DEPLOYMENT_LABEL)
        return any(name in activities.revisions_of(each).values() for each in found)

    async def _deployments(self, namespace: str, selector: str) -> list[kube.Object]:
        """Read Deployments; none if the operator may not, because it runs no workers."""
        try:
            url = kube.path(kube.APPS, namespace, "deployments")
            found: list[kube.Object] = await self._client.lists.all(url, labelSelector=selector)
        except kube.ApiError as error:
            if error.status != HTTPStatus.FORBIDDEN:
                raise
            return []
        return found
