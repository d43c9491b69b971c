"""Perform an action on a Kubernetes object with the permissions of the pod, and wait until its conditions are met."""

import asyncio
import hashlib
from collections.abc import Mapping
from typing import Any, Final

from perdure import activity
from perdure.activity import ApplicationError
from perdure.api.labels import API_VERSION, CREATED_BY_ACTIVITY_ANNOTATION
from perdure.kube import client as kube
from perdure.kube.access import service_account
from perdure.runner.expressions import DeferredExpressions

_LONGEST_WAIT: Final = 5.0
"""The longest wait before the object is read again, in seconds; each is twice as long as the previous one, up to this."""
_FIELD_MANAGER: Final = "perdure-activity"
_PATCHES: Final = {
    "Merge": "application/merge-patch+json",
    "Strategic": "application/strategic-merge-patch+json",
    "Json": "application/json-patch+json",
}
_APPLY: Final = "application/apply-patch+yaml"
_BUSY: Final = {409, 429}
"""Status codes below 500 that are retried."""


async def act(resource: Mapping[str, Any], expressions: DeferredExpressions, environ: Mapping[str, str]) -> Any:
    """Perform the action, and return the result of the activity.

    Args:
        resource: The field `resource` of the activity, with its expressions evaluated.
        expressions: Evaluates its conditions and its output.
        environ: The environment, with the address of the API server.

    Raises:
        ApplicationError: The action failed.
    """
    access = service_account(environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443"))
    if access is None:
        message = "the pod has no token: its ServiceAccount has `automountServiceAccountToken: false`"
        raise ApplicationError(message, type="NoToken", non_retryable=True)
    async with kube.Client.open(access, user_agent="perdure-activity", connections=1) as client:
        return await perform(client, resource, expressions)


async def perform(
    client: kube.Client, resource: Mapping[str, Any], expressions: DeferredExpressions, *, first_wait: float = 0.5
) -> Any:
    """Perform the action with a client; see `act`. The first wait before the object is read again is in seconds."""
    action = Action(client, resource, expressions, first_wait)
    try:
        return await action.perform()
    except kube.ApiError as error:
        retryable = error.status in _BUSY or error.status >= 500  # noqa: PLR2004
        message = f"{resource['action']} {action.what}: {error.message}"
        raise ApplicationError(message, type=error.reason or "ApiError", non_retryable=not retryable) from error
    except kube.NoResponseError as error:
        message = f"{resource['action']} {action.what}: the API server cannot be reached: {error}"
        raise ApplicationError(message, type="ApiServerUnreachable") from error


class Action:
    """An action on one object."""

    def __init__(
        self, client: kube.Client, resource: Mapping[str, Any], expressions: DeferredExpressions, first_wait: float
    ) -> None:
        self._client = client
        self._wait = first_wait
        self._resource = resource
        self._expressions = expressions
        self._manifest = completed(resource["manifest"], owned=resource["owned"])
        name, namespace = self._manifest["metadata"]["name"], self._manifest["metadata"].get("namespace")
        self.what = f"{self._manifest['kind']} `{namespace}/{name}`"
        """The name of the object in messages."""

    async def perform(self) -> Any:
        """Perform the action, wait for the conditions, and return the output."""
        collection = await self._collection()
        url = f"{collection}/{self._manifest['metadata']['name']}"
        if self._resource["action"] == "Delete":
            await self._client.delete(url)
            return await self._wait_until_deleted(url)
        found = await self._acted(collection, url)
        found = await self._awaited(url, found)
        if self._resource.get("output") is None:
            fields = ("name", "namespace", "uid")
            metadata = {field: found["metadata"].get(field) for field in fields}
            return {"apiVersion": found.get("apiVersion"), "kind": found.get("kind"), **metadata}
        return self._expressions.output(self._resource["output"], object=found)

    async def _collection(self) -> str:
        """The path of the collection of its kind, from the API server's discovery."""
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
        """Perform the action, and return the object; None if it does not exist yet and must be waited for."""
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
        """Create the object, or return the one that an earlier attempt created."""
        try:
            return await self._client.create(f"{collection}?fieldManager={_FIELD_MANAGER}", self._manifest)
        except kube.AlreadyExistsError:
            found = await self._client.get(url)
            if (found["metadata"].get("annotations") or {}).get(CREATED_BY_ACTIVITY_ANNOTATION) == _identity():
                return found
            message = f"{self.what} already exists and was not created by this activity"
            raise ApplicationError(message, type="AlreadyExists", non_retryable=True) from None

    async def _awaited(self, url: str, found: kube.Object | None) -> kube.Object:
        """Wait until the conditions decide, and return the object."""
        success, failure = self._resource.get("successCondition"), self._resource.get("failureCondition")
        while True:
            if found is not None:
                if failure and self._expressions.is_true(failure, "failureCondition", object=found):
                    message = f"{self.what}: `failureCondition` is true: {failure}"
                    raise ApplicationError(message, type="ConditionFailed", non_retryable=True)
                if not success or self._expressions.is_true(success, "successCondition", object=found):
                    return found
                await self._pause()
            try:
                found = await self._client.get(url)
            except kube.NotFoundError:
                if self._resource["action"] != "Get":
                    raise
                await self._pause()

    async def _wait_until_deleted(self, url: str) -> None:
        """Wait until the object does not exist."""
        while True:
            try:
                await self._client.get(url)
            except kube.NotFoundError:
                return
            await self._pause()

    async def _pause(self) -> None:
        """Wait before the object is read again, twice as long as the last time."""
        await asyncio.sleep(self._wait)
        self._wait = min(self._wait * 2, _LONGEST_WAIT)


def completed(manifest: Mapping[str, Any], *, owned: bool) -> dict[str, Any]:
    """Complete the manifest with a name, a namespace, and the annotation of this activity.

    Args:
        manifest: The manifest from the definition.
        owned: Whether the run owns the object.
    """
    info = activity.info()
    metadata = dict(manifest.get("metadata") or {})
    prefix = metadata.pop("generateName", None)
    if prefix and not metadata.get("name"):
        # The name is the same for all attempts, so that no second object is created after a lost response.
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
