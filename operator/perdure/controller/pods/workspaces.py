"""The volumes of a run's workspaces, and their claims. Claims are created when a pod first needs them, and adopted after a crash.

A run that continues the history of another one, after a reset or a retry, also becomes an owner of its claims.

A claim is never created again for a run that has the result of a step that wrote to it: the attempt that needs it fails with
`WorkspaceLost`, and a reset or a retry that would need it is refused.

The claims of a closed run are deleted, or kept until the run is deleted, as their workspace specifies. This needs no state: a
label marks claims that are not processed yet, so a restart changes nothing. Owner references delete a kept claim together with
its runs.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import structlog

from perdure.api import labels
from perdure.api.kinds.workflow import Activity
from perdure.api.kinds.workspace import Workspace
from perdure.api.reasons import ConditionReason
from perdure.controller.directory import Directory, Standing
from perdure.controller.pods.attempt_pods import DENIED, AttemptBlockedError, AttemptImpossibleError
from perdure.controller.reconcile.refusals import is_temporary
from perdure.controller.recorded_state import distrust
from perdure.engine.failures import Failure, FailureKind
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import ResetOrigin, is_open
from perdure.runtime.pods.workspaces import (
    Volume,
    build_claim,
    claim_annotations,
    claim_labels,
    claim_owner,
    ephemeral_volume,
    is_deleted_after,
    lost_files,
    pods_label,
    volume_of,
)

_TRIAL: Final = "perdure-trial"
_LOOKS: Final = 2
"""How often to look for a claim that another process may have created."""
Writers = Callable[[str], Awaitable[Sequence[str]]]
"""Returns the steps of the run that may have written to a workspace, by its name, and that have completed."""

_SELECTOR: Final = f"{labels.WORKSPACE_LABEL},{labels.STAYS_UNTIL_LABEL}={labels.RUN_CLOSED}"
_SUCCEEDED: Final = {"Completed", "ContinuedAsNew"}


class WorkspaceVolumes:
    """The workspace volumes of one run."""

    def __init__(self, client: kube.Client, run: RunRef, reset: ResetOrigin | None) -> None:
        """Create it.

        Args:
            client: Reads and creates claims.
            run: The run.
            reset: The origin of the run, if a reset created it.
        """
        self._client = client
        self._run = run
        self._original = (reset.original.name, reset.original.run_id) if reset is not None else (run.name, run.uid)
        self._users = {run.uid, *(each.run_id for each in reset.lineage)} if reset is not None else {run.uid}

    async def of(
        self, definition: Activity, workspaces: Mapping[str, Workspace], writers: Writers
    ) -> Mapping[str, Volume]:
        """Ensure the claims of the workspaces that an activity mounts, and return the volumes by name.

        Args:
            definition: The activity.
            workspaces: The workspaces that it can mount, by name.
            writers: Reads which completed steps may have written to a workspace, if its claim does not exist.

        Raises:
            AttemptImpossibleError: A claim can never be created, or is gone together with the files of completed steps.
            AttemptBlockedError: A claim does not exist, or cannot be created for now.
            RequestError: The Kubernetes API request failed.
        """
        names = dict.fromkeys(mount.name for mount in definition.workspaces)
        return {name: await self._volume(workspaces[name], writers) for name in names}

    async def lost(self, workspaces: Iterable[Workspace]) -> list[str]:
        """Those of the workspaces whose claim, which was created for the run, is gone or about to be deleted.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        found = []
        for workspace in workspaces:
            if workspace.volume_claim_template is None:
                continue
            claim = build_claim(self._run, self._original, workspace)["metadata"]["name"]
            try:
                meta = (await self._client.metadata(self._url(claim)))["metadata"]
            except kube.NotFoundError:
                found.append(workspace.name)
                continue
            if meta.get("deletionTimestamp"):
                found.append(workspace.name)
        return found

    async def _volume(self, workspace: Workspace, writers: Writers) -> Volume:
        existing = workspace.persistent_volume_claim
        if existing is not None:
            try:
                return volume_of(await self._client.get(self._url(existing.claim_name)))
            except kube.NotFoundError:
                where = f"in namespace `{self._run.namespace}`"
                message = (
                    f"workspace `{workspace.name}`: there is no PersistentVolumeClaim `{existing.claim_name}` {where}"
                )
                raise AttemptBlockedError(message) from None
        return ephemeral_volume(workspace) or volume_of(await self._ensure_claim(workspace, writers))

    async def _ensure_claim(self, workspace: Workspace, writers: Writers) -> kube.Object:
        body = build_claim(self._run, self._original, workspace)
        name = body["metadata"]["name"]
        for _ in range(_LOOKS):
            try:
                found = await self._client.get(self._url(name))
            except kube.NotFoundError:
                await _check_unwritten(workspace, writers)
                created = await self._create(workspace, body)
                if created is not None:
                    return created
            else:
                if found["metadata"].get("deletionTimestamp"):
                    await _check_unwritten(workspace, writers)
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
            if is_temporary(error) or DENIED in error.message:
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
            await self._take_over(workspace, meta)
        except (kube.ConflictError, kube.NotFoundError):
            raise AttemptBlockedError(f"{name} changed a moment ago") from None

    async def take_over(self, workspaces: Iterable[Workspace]) -> None:
        """Become an owner of the claims of the run whose history this one continues, because that run may be deleted next.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        for workspace in workspaces:
            if workspace.volume_claim_template is None:
                continue
            name = build_claim(self._run, self._original, workspace)["metadata"]["name"]
            try:
                meta = (await self._client.metadata(self._url(name)))["metadata"]
                owners = {owner.get("uid") for owner in meta.get("ownerReferences") or ()}
                if owners & self._users and self._run.uid not in owners and not meta.get("deletionTimestamp"):
                    await self._take_over(workspace, meta)
            except kube.NotFoundError:
                continue  # no attempt has needed it yet, or it was deleted

    async def _take_over(self, workspace: Workspace, meta: kube.Object) -> None:
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
        return _claims(self._run.namespace, name)


async def _check_unwritten(workspace: Workspace, writers: Writers) -> None:
    """Check that no completed step has written to a workspace whose claim is gone.

    Raises:
        AttemptImpossibleError: One may have.
    """
    if paths := await writers(workspace.name):
        message = f"{lost_files(workspace.name, paths)}; retry the run, and name it in `from`"
        raise AttemptImpossibleError(
            Failure(
                kind=FailureKind.APPLICATION,
                type=ConditionReason.WORKSPACE_LOST.value,
                message=message,
                non_retryable=True,
            )
        )


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
    try:
        await client.create(f"{_claims(namespace)}?dryRun=All&fieldValidation=Strict", body)
    except kube.InvalidError as error:
        name = body["metadata"]["name"]
        return error.message.removeprefix(f'PersistentVolumeClaim "{name}" is invalid: ')
    except kube.ApiError as error:
        if not is_temporary(error) and not isinstance(error, kube.AlreadyExistsError | kube.NotFoundError):
            raise
    return None


class ReleasedClaims:
    """Deletes or keeps the claims of closed runs."""

    def __init__(self, client: kube.Client, directory: Directory, pod_ttl: timedelta) -> None:
        """Create it.

        Args:
            client: Reads, patches and deletes.
            directory: The directory, to check which runs are open.
            pod_ttl: How long kept pods that mount a deleted claim stay.
        """
        self._client = client
        self._directory = directory
        self._pod_ttl = pod_ttl
        self._log = structlog.get_logger("perdure.claims")

    async def release(self, namespace: str | None) -> None:
        """Release the claims of closed runs.

        Args:
            namespace: The namespace; None for all namespaces.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        async for claim in self._client.lists.each_metadata(_claims(namespace), labelSelector=_SELECTOR):
            meta = claim["metadata"]
            known = self._directory.get(meta["labels"].get(labels.RUN_ID_LABEL, ""))
            if not meta.get("deletionTimestamp") and (known is None or known.standing is Standing.CLOSED):
                await self._release(claim)

    async def _release(self, claim: kube.Object) -> None:
        meta = claim["metadata"]
        run = await self._run(claim)
        status = run.get("status") or {} if run is not None else {}
        if run is None or is_open(status) or distrust(run):
            return  # the garbage collector deletes the claim of a deleted run
        url = _claims(meta["namespace"], meta["name"])
        if not is_deleted_after(claim, succeeded=status.get("phase") in _SUCCEEDED):
            change = {
                "resourceVersion": meta["resourceVersion"],
                "labels": {labels.STAYS_UNTIL_LABEL: labels.RUN_DELETED},
            }
            try:
                await self._client.merge(url, {"metadata": change})
            except (kube.ConflictError, kube.NotFoundError):
                return  # another run may have taken it over since it was listed
            return
        await self._expire_pods(meta["namespace"], meta["name"])
        if await self._client.delete(url, uid=meta["uid"], version=meta["resourceVersion"]):
            where = {"namespace": meta["namespace"], "claim": meta["name"], "run": run["metadata"]["name"]}
            self._log.info("Deleted the claim of a run that has closed", **where)

    async def _run(self, claim: kube.Object) -> kube.Object | None:
        """Read the run that a claim names, if the run is one of its owners."""
        meta = claim["metadata"]
        uid = meta["labels"].get(labels.RUN_ID_LABEL)
        name = next((each["name"] for each in meta.get("ownerReferences") or () if each.get("uid") == uid), None)
        if name is None:
            return None
        try:
            run = await self._client.get(kube.path(kube.PERDURE, meta["namespace"], "workflowruns", name))
        except kube.NotFoundError:
            return None
        return run if run["metadata"]["uid"] == uid else None

    async def _expire_pods(self, namespace: str, claim: str) -> None:
        """Expire the pods that mount a claim soon, because Kubernetes keeps the claim until they are deleted."""
        url, expires = kube.path(kube.CORE, namespace, "pods"), str(int((now() + self._pod_ttl).timestamp()))
        selector = f"{labels.RUN_ID_LABEL},{pods_label(claim)},!{labels.EXPIRES_LABEL}"
        async for pod in self._client.lists.each_metadata(url, labelSelector=selector):
            if not pod["metadata"].get("deletionTimestamp"):
                change = {"metadata": {"labels": {labels.EXPIRES_LABEL: expires}}}
                try:
                    await self._client.merge(f"{url}/{pod['metadata']['name']}", change)
                except kube.NotFoundError:
                    continue


def _claims(namespace: str | None, name: str | None = None) -> str:
    return kube.path(kube.CORE, namespace, "persistentvolumeclaims", name)
