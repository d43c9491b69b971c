"""The volumes of a run's workspaces. Claims are created when a pod first needs them, and adopted after a crash.

A run that continues the history of another one, after a reset or a retry, also becomes an owner of its claims.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from perdure.api import labels
from perdure.api.kinds.workflow import Activity
from perdure.api.kinds.workspace import Workspace
from perdure.controller.pods.attempt_errors import AttemptBlockedError, AttemptImpossibleError
from perdure.controller.reconcile.refusals import is_for_now
from perdure.engine.failures import Failure, FailureKind
from perdure.kube import client as kube
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import ResetOrigin
from perdure.runtime.pods.workspaces import (
    Volume,
    build_claim,
    claim_annotations,
    claim_labels,
    claim_owner,
    own_volume,
    volume_of,
)

_DENIED: Final = "denied request"
"""Part of the message of an admission policy."""
_TRIAL: Final = "perdure-trial"
_LOOKS: Final = 2
"""How often to look for a claim that another process may have created."""


class WorkspaceVolumes:
    """The workspace volumes of one run."""

    def __init__(self, client: kube.Client, run: RunRef, reset: ResetOrigin | None) -> None:
        """Create it without workspaces.

        Args:
            client: Reads and creates claims.
            run: The run.
            reset: The origin of the run, if a reset created it.
        """
        self._client = client
        self._run = run
        self._original = (reset.original.name, reset.original.run_id) if reset is not None else (run.name, run.uid)
        self._users = {run.uid, *(each.run_id for each in reset.lineage)} if reset is not None else {run.uid}
        self._workspaces: Mapping[str, Workspace] = {}

    def define(self, workspaces: Iterable[Workspace]) -> None:
        """Set the workspaces of the run's definition."""
        self._workspaces = {workspace.name: workspace for workspace in workspaces}

    async def of(self, definition: Activity) -> Mapping[str, Volume]:
        """Ensure the claims of the workspaces that an activity mounts, and return the volumes by name.

        Raises:
            AttemptImpossibleError: A claim can never be created.
            AttemptBlockedError: A claim does not exist, or cannot be created for now.
            RequestError: The Kubernetes API request failed.
        """
        names = dict.fromkeys(mount.name for mount in definition.workspaces)
        return {name: await self._volume(self._workspaces[name]) for name in names}

    async def _volume(self, workspace: Workspace) -> Volume:
        given = workspace.persistent_volume_claim
        if given is not None:
            try:
                return volume_of(await self._client.get(self._url(given.claim_name)))
            except kube.NotFoundError:
                where = f"in namespace `{self._run.namespace}`"
                message = (
                    f"workspace `{workspace.name}`: there is no PersistentVolumeClaim `{given.claim_name}` {where}"
                )
                raise AttemptBlockedError(message) from None
        return own_volume(workspace) or volume_of(await self._ensure_claim(workspace))

    async def _ensure_claim(self, workspace: Workspace) -> kube.Object:
        body = build_claim(self._run, self._original, workspace)
        name = body["metadata"]["name"]
        for _ in range(_LOOKS):
            try:
                found = await self._client.get(self._url(name))
            except kube.NotFoundError:
                made = await self._create(workspace, body)
                if made is not None:
                    return made
            else:
                await self._adopt(workspace, found)
                return found
        raise AttemptBlockedError(f"PersistentVolumeClaim `{name}` was created and deleted a moment ago")

    async def _create(self, workspace: Workspace, body: kube.Object) -> kube.Object | None:
        """Create the claim; None if another operator has just created it."""
        what = f"the PersistentVolumeClaim of workspace `{workspace.name}`"
        try:
            return await self._client.create(f"{self._url()}?fieldValidation=Strict", body)
        except kube.AlreadyExistsError:
            return None
        except kube.ApiError as error:
            if is_for_now(error) or _DENIED in error.message:
                raise AttemptBlockedError(f"{what} cannot be created: {error.message}") from error
            if not isinstance(error, kube.InvalidError):
                raise
            message = f"the API server refuses {what}: {error.message}"
            failure = Failure(kind=FailureKind.APPLICATION, type="InvalidClaim", message=message, non_retryable=True)
            raise AttemptImpossibleError(failure) from error

    async def _adopt(self, workspace: Workspace, claim: kube.Object) -> None:
        """Adopt an existing claim of this run, or of the run whose history this one continues."""
        meta = claim["metadata"]
        name = f"PersistentVolumeClaim `{meta['name']}` of workspace `{workspace.name}`"
        owners = meta.get("ownerReferences") or []
        known = {owner.get("uid") for owner in owners}
        if not known & self._users:
            raise AttemptBlockedError(f"{name} does not belong to this run; delete it")
        if meta.get("deletionTimestamp"):
            raise AttemptBlockedError(f"{name} is being deleted; the operator creates it again, without its files")
        if self._run.uid in known and (meta.get("labels") or {}).get(labels.RUN_ID_LABEL) == self._run.uid:
            return
        try:
            await self._own(workspace, meta)
        except (kube.ConflictError, kube.NotFoundError):
            raise AttemptBlockedError(f"{name} changed a moment ago") from None

    async def take_over(self) -> None:
        """Become an owner of the claims of the run whose history this one continues, because that run may be deleted next.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        for workspace in self._workspaces.values():
            if workspace.volume_claim_template is None:
                continue
            name = build_claim(self._run, self._original, workspace)["metadata"]["name"]
            try:
                meta = (await self._client.metadata(self._url(name)))["metadata"]
                owners = {owner.get("uid") for owner in meta.get("ownerReferences") or ()}
                if owners & self._users and self._run.uid not in owners and not meta.get("deletionTimestamp"):
                    await self._own(workspace, meta)
            except kube.NotFoundError:
                continue  # no attempt has needed it yet, or it was deleted

    async def _own(self, workspace: Workspace, meta: kube.Object) -> None:
        """Become an owner of a claim, and the run whose end releases it."""
        others = [owner for owner in meta.get("ownerReferences") or () if owner.get("uid") != self._run.uid]
        change = {
            "resourceVersion": meta["resourceVersion"],
            "ownerReferences": [*others, claim_owner(self._run)],
            "labels": claim_labels(self._run, workspace),
            "annotations": claim_annotations(workspace),
        }
        await self._client.merge(self._url(meta["name"]), {"metadata": change})

    def _url(self, name: str | None = None) -> str:
        return kube.path(kube.CORE, self._run.namespace, "persistentvolumeclaims", name)


async def claim_refusal(client: kube.Client, namespace: str, workspace: Workspace) -> str | None:
    """Return why the API server would reject the claim of a workspace, in its own words; None if it would not.

    This is a dry run: no claim is created. A temporary obstacle, such as an exhausted quota, does not count.

    Raises:
        RequestError: The Kubernetes API request failed.
    """
    if workspace.volume_claim_template is None:
        return None
    nobody = RunRef(namespace=namespace, name=_TRIAL, uid="", workflow_id="")
    body = build_claim(nobody, (_TRIAL, ""), workspace)
    del body["metadata"]["ownerReferences"], body["metadata"]["labels"][labels.RUN_ID_LABEL]
    url = kube.path(kube.CORE, namespace, "persistentvolumeclaims")
    try:
        await client.create(f"{url}?dryRun=All&fieldValidation=Strict", body)
    except kube.InvalidError as error:
        name = body["metadata"]["name"]
        return error.message.removeprefix(f'PersistentVolumeClaim "{name}" is invalid: ')
    except kube.ApiError as error:
        if not is_for_now(error) and not isinstance(error, kube.AlreadyExistsError | kube.NotFoundError):
            raise
    return None
