"""Acts on a Kubernetes object with the permissions of the pod, and waits until it is as the conditions say."""

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any, Final

from perdure import activity
from perdure.activity import ApplicationError
from perdure.api.common import API_VERSION
from perdure.api.labels import CREATED_BY_ACTIVITY_ANNOTATION
from perdure.kube import client as kube
from perdure.kube.access import service_account
from perdure.runner.expressions import Later

_FIRST_WAIT: Final = 0.5
"""Seconds before the object is read again."""
_LONGEST_WAIT: Final = 5.0
"""Seconds; each wait is twice as long as the one before, up to this."""
_FIELD_MANAGER: Final = "perdure-activity"
_PATCHES: Final = {
    "Merge": "application/merge-patch+json",
    "Strategic": "application/strategic-merge-patch+json",
    "Json": "application/json-patch+json",
}
_APPLY: Final = "application/apply-patch+yaml"
_BUSY: Final = {409, 429}
"""Refusals that may pass, besides those from 500."""


async def act(resource: Mapping[str, Any], later: Later, environ: Mapping[str, str]) -> Any:
    """Perform the action; the result of the activity.

    Args:
        resource: The field `resource` of the activity, whose expressions are evaluated.
        later: For its conditions and its output.
        environ: Says where the API server is.

    Raises:
        ApplicationError: The action failed.
    """
    access = service_account(environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443"))
    if access is None:
        message = "the pod has no token: its ServiceAccount has `automountServiceAccountToken: false`"
        raise ApplicationError(message, type="NoToken", non_retryable=True)
    async with kube.Client.open(access, user_agent="perdure-activity", connections=1) as client:
        return await perform(client, resource, later)


async def perform(client: kube.Client, resource: Mapping[str, Any], later: Later) -> Any:
    """Perform the action with a client; see `act`."""
    action = Action(client, resource, later)
    try:
        return await action.perform()
    except kube.ApiError as error:
        retryable = error.status in _BUSY or error.status >= 500  # noqa: PLR2004
        message = f"{resource['action']} {action.what}: {error.message}"
        raise ApplicationError(message, type=error.reason or "ApiError", non_retryable=not retryable) from error
    except kube.TRANSIENT as error:
        message = f"{resource['action']} {action.what}: the API server cannot be reached: {error}"
        raise ApplicationError(message, type="ApiServerUnreachable") from error


class Action:
    """An action on one object."""

    def __init__(self, client: kube.Client, resource: Mapping[str, Any], later: Later) -> None:
        self._client = client
        self._resource = resource
        self._later = later
        self._manifest = completed(resource["manifest"], owned=resource["owned"])
        name, namespace = self._manifest["metadata"]["name"], self._manifest["metadata"].get("namespace")
        self.what = f"{self._manifest['kind']} `{namespace}/{name}`"
        """For messages."""

    async def perform(self) -> Any:
        """Perform it, wait for the conditions, and give the output."""
        collection = await self._collection()
        url = f"{collection}/{self._manifest['metadata']['name']}"
        if self._resource["action"] == "Delete":
            await self._client.delete(url)
            return await self._gone(url)
        found = await self._acted(collection, url)
        found = await self._awaited(url, found)
        if self._resource.get("output") is None:
            fields = ("name", "namespace", "uid")
            metadata = {field: found["metadata"].get(field) for field in fields}
            return {"apiVersion": found.get("apiVersion"), "kind": found.get("kind"), **metadata}
        return self._later.output(self._resource["output"], object=found)

    async def _collection(self) -> str:
        """The path of the objects of its kind, found in the API server's own list."""
        group_version = str(self._manifest["apiVersion"])
        root = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
        served = (await self._client.get(root)).get("resources") or ()
        kind = self._manifest["kind"]
        found = next((each for each in served if each["kind"] == kind and "/" not in each["name"]), None)
        if found is None:
            message = f"the API server has no kind `{kind}` in `{group_version}`"
            raise ApplicationError(message, type="UnknownKind", non_retryable=True)
        namespace = self._manifest["metadata"]["namespace"] if found["namespaced"] else None
        return kube.path(root, namespace, found["name"])

    async def _acted(self, collection: str, url: str) -> kube.Object | None:
        """The object after the action; None if it does not exist yet, and is awaited."""
        match self._resource["action"]:
            case "Create":
                return await self._created(collection, url)
            case "Apply":
                return await self._client.change(url, self._manifest, _APPLY, fieldManager=_FIELD_MANAGER)
            case "Patch":
                kind = _PATCHES[self._resource["patchType"]]
                return await self._client.change(url, self._resource["patch"], kind, fieldManager=_FIELD_MANAGER)
            case _:
                return None if self._resource.get("successCondition") else await self._client.get(url)

    async def _created(self, collection: str, url: str) -> kube.Object:
        """The object that this attempt, or an earlier one, has created."""
        try:
            return await self._client.create(f"{collection}?fieldManager={_FIELD_MANAGER}", self._manifest)
        except kube.AlreadyExistsError:
            found = await self._client.get(url)
            if (found["metadata"].get("annotations") or {}).get(CREATED_BY_ACTIVITY_ANNOTATION) == _identity():
                return found
            message = f"{self.what} exists already, and this activity has not created it"
            raise ApplicationError(message, type="AlreadyExists", non_retryable=True) from None

    async def _awaited(self, url: str, found: kube.Object | None) -> kube.Object:
        """The object once the conditions decide."""
        success, failure = self._resource.get("successCondition"), self._resource.get("failureCondition")
        wait = _FIRST_WAIT
        while True:
            if found is not None:
                if failure and self._later.holds(failure, "failureCondition", object=found):
                    message = f"{self.what}: `failureCondition` is true: {failure}"
                    raise ApplicationError(message, type="ConditionFailed", non_retryable=True)
                if not success or self._later.holds(success, "successCondition", object=found):
                    return found
                await asyncio.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT)
            try:
                found = await self._client.get(url)
            except kube.NotFoundError:
                if self._resource["action"] != "Get":
                    raise
                await asyncio.sleep(wait)
                wait = min(wait * 2, _LONGEST_WAIT)

    async def _gone(self, url: str) -> None:
        """Wait until the object does not exist."""
        wait = _FIRST_WAIT
        while True:
            try:
                await self._client.get(url)
            except kube.NotFoundError:
                return
            await asyncio.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT)


def completed(manifest: Mapping[str, Any], *, owned: bool) -> dict[str, Any]:
    """The manifest with a name, a namespace, and the mark of this activity.

    Args:
        manifest: As the definition has it.
        owned: Whether the run owns the object.
    """
    info = activity.info()
    metadata = dict(manifest.get("metadata") or {})
    prefix = metadata.pop("generateName", None)
    if prefix and not metadata.get("name"):
        # The same for all attempts, so that one whose response is lost is not repeated with another name.
        metadata["name"] = f"{prefix}{hashlib.sha256(_identity().encode()).hexdigest()[:10]}"
    metadata.setdefault("namespace", info.namespace)
    annotations = dict(metadata.get("annotations") or {})
    metadata["annotations"] = {**annotations, CREATED_BY_ACTIVITY_ANNOTATION: _identity()}
    if owned:
        owner = {"apiVersion": API_VERSION, "kind": "WorkflowRun", "name": info.run, "uid": info.run_id}
        metadata["ownerReferences"] = [*(metadata.get("ownerReferences") or ()), owner]
    return {**manifest, "metadata": metadata}


def _identity() -> str:
    info = activity.info()
    return f"{info.run_id}/{info.activity_id}"
