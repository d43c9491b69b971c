"""The pods and Leases of attempts: made, looked at, let go. Each call may be repeated after a crash."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from perdure.api import labels
from perdure.api.names import pod_name
from perdure.api.workflow import Activity, Retention
from perdure.api.workspace import Workspace
from perdure.controller.pods.expired_pods import delete_expired
from perdure.controller.pods.pod_logs import Logs
from perdure.controller.pods.service_account import ActivityIdentity
from perdure.controller.reconcile.refusals import is_for_now
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.state import PendingActivity, RunState
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.language import containers
from perdure.language.step_failures import StepError
from perdure.runtime.attempts import Attempt, AttemptRefusedError, PodSettings, RunRef
from perdure.runtime.leases import build_lease
from perdure.runtime.ownership import lease_conflict, made_for, pod_conflict
from perdure.runtime.pods import DEFAULT_CONTAINER_ANNOTATION, build_pod, build_trial, retention_of
from perdure.runtime.statuses import EndedContainer, PodStatus
from perdure.runtime.workspaces import Volume, trial_volume, with_volumes


@dataclass(frozen=True, slots=True, order=True)
class PodKey:
    """Which attempt a pod belongs to."""

    scheduled_event_id: int
    attempt: int

    @classmethod
    def of(cls, activity: PendingActivity) -> "PodKey":
        """The attempt of an open activity that is due."""
        return cls(activity.scheduled_event_id, activity.attempt)

    def due(self, state: RunState) -> PendingActivity | None:
        """The open activity whose attempt that is; None for an attempt nobody waits for."""
        activity = state.activity(self.scheduled_event_id)
        return activity if activity is not None and activity.attempt == self.attempt else None


_REFUSED = frozenset({400, 403, 422})
_NO_REFUSAL = ("exceeded quota", "does not support dry run", "is being terminated")
"""What the API server says where it refuses a trial for now, or cannot try at all."""
_DENIED = "denied request"
"""What an admission policy says."""
_COUNTED = "count/pods="
"""What the API server says of a quota of pods that also counts those that have ended, and so those that are kept."""
_LOOKS = 3
"""How often a pod is looked at again when its finalizers have moved."""


class AttemptBlockedError(Exception):
    """The attempt cannot have its pod for now; trying again may help."""

    lacks = "no pod for attempt {} yet"


class LeaseBlockedError(AttemptBlockedError):
    """The attempt has its pod, and cannot have its Lease for now; trying again may help."""

    lacks = "no Lease for attempt {} yet, so its heartbeats and large results are not received"


class AttemptImpossibleError(Exception):
    """The attempt will never have a pod: the activity fails with `failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def key_of(pod: kube.Object) -> PodKey | None:
    """The attempt that a pod says it belongs to; None where it does not say."""
    notes = pod["metadata"].get("annotations") or {}
    try:
        return PodKey(int(notes[labels.SCHEDULED_EVENT_ANNOTATION]), int(notes[labels.ATTEMPT_ANNOTATION]))
    except (KeyError, ValueError):
        return None


def is_of(pod: kube.Object, run: RunRef) -> bool:
    """Whether a pod is an attempt of the run: made for it, and of the name that only the attempt's own pod can have."""
    meta, key = pod["metadata"], key_of(pod)
    named = key is not None and meta["name"] == pod_name(run.name, key.scheduled_event_id, key.attempt)
    return named and meta["namespace"] == run.namespace and made_for(pod, run)


def has_ended(pod: kube.Object) -> bool:
    """Whether no container of the pod runs any more, or will; the phase follows only a little later."""
    status = PodStatus.of(pod)
    return (
        status.phase in {"Succeeded", "Failed"}
        or status.failed_init_container() is not None
        or (bool(status.containers) and all("terminated" in (c.get("state") or {}) for c in status.containers))
    )


def activity_has_ended(pod: kube.Object) -> bool:
    """Whether the activity's own container has ended, whatever other containers of its pod do."""
    return _own_end(pod) is not None


def has_succeeded(pod: kube.Object) -> bool:
    """Whether the pod as a whole says that it has succeeded, or the activity's own container did: the others may be stopped."""
    end = _own_end(pod)
    return (pod.get("status") or {}).get("phase") == "Succeeded" or (end is not None and end.exit_code == 0)


def _own_end(pod: kube.Object) -> EndedContainer | None:
    main = (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER_ANNOTATION)
    return None if main is None else PodStatus.of(pod).ended(main)


def held(pod: kube.Object) -> bool:
    """Whether our finalizer keeps the pod."""
    return labels.FINALIZER in (pod["metadata"].get("finalizers") or ())


def _scope_of(run: RunRef) -> dict[str, str]:
    """What expressions in a container know as `run`."""
    return {"name": run.name, "namespace": run.namespace, "workflowId": run.workflow_id, "runId": run.uid}


class Pods:
    """What the operator does with the pods of activities."""

    def __init__(self, client: kube.Client, identity: ActivityIdentity, settings: PodSettings) -> None:
        self._client = client
        self._identity = identity
        self.settings = settings
        self.logs = Logs(client)

    async def ensure(
        self, run: RunRef, attempt: Attempt, definition: Activity, volumes: Mapping[str, Volume]
    ) -> kube.Object:
        """The attempt's pod, and its Lease where it has one: created, or adopted where an earlier try has created them.

        `volumes` has the volume of each workspace that the activity mounts.

        Raises:
            AttemptRefusedError, AttemptImpossibleError: it will never have one.
            AttemptBlockedError: Something that may pass blocks it.
            ApiError, OSError: the API server cannot be asked.
        """
        try:
            resolved = containers.resolve(definition, input=attempt.input, run=_scope_of(run), attempt=attempt.attempt)
        except StepError as error:
            raise AttemptImpossibleError(error.failure) from error
        mounted = with_volumes(resolved, volumes, self.settings.run_as_user)
        pod = await self._ensure_pod(run, attempt, build_pod(run, attempt, mounted, self.settings))
        if attempt.needs_lease:
            await self.ensure_lease(run, attempt, pod)
        return pod

    async def _ensure_identity(self, run: RunRef, body: kube.Object) -> None:
        if body["spec"].get("serviceAccountName") != self.settings.service_account:
            return
        try:
            await self._identity.ensure(run.namespace)
        except kube.ApiError as error:
            message = f"the ServiceAccount for activities with a Lease cannot be made: {error.message}"
            raise AttemptBlockedError(message) from error

    async def _ensure_pod(self, run: RunRef, attempt: Attempt, body: kube.Object) -> kube.Object:
        await self._ensure_identity(run, body)
        url = kube.path(kube.CORE, run.namespace, "pods")
        try:
            # Strict: a typo in a field of `container` is an error here, as it is with kubectl.
            return await self._client.create(f"{url}?fieldValidation=Strict", body)
        except kube.AlreadyExistsError:
            try:
                pod = await self._client.get(f"{url}/{body['metadata']['name']}")
            except kube.NotFoundError:
                raise AttemptBlockedError("a pod of this name was there a moment ago, and is gone") from None
            conflict = pod_conflict(pod, run, attempt)
            if conflict:
                raise AttemptBlockedError(conflict.message) from None
            return pod
        except kube.InvalidError as error:
            if _DENIED in error.message:  # an admission policy, which may be changed, or a quota of one
                raise AttemptBlockedError(error.message) from error
            message = f"activity `{attempt.activity_type}`: the API server refuses its pod: {error.message}"
            failure = Failure(kind=FailureKind.APPLICATION, type="InvalidPod", message=message, non_retryable=True)
            raise AttemptImpossibleError(failure) from error
        except kube.ApiError as error:
            if is_for_now(error):  # also a service account that is not there yet
                self._identity.forget(run.namespace)
                if _COUNTED in error.message:
                    await delete_expired(self._client, run.namespace, now(), most=0)
                raise AttemptBlockedError(error.message) from error
            raise

    async def refusal(self, namespace: str, definition: Activity, workspaces: Mapping[str, Workspace]) -> str | None:
        """Return why the API server would reject the pods of an activity, in its own words; None if it would not, or cannot say.

        This is a dry run: no pod is created. A temporary obstacle, such as an exhausted quota, does not count.

        Raises:
            ApiError, OSError: the API server cannot be asked.
        """
        if definition.worker is not None:
            return None
        try:
            volumes = {name: trial_volume(workspace) for name, workspace in workspaces.items()}
            mounted = with_volumes(containers.with_placeholders(definition), volumes, self.settings.run_as_user)
            body = build_trial(namespace, mounted, self.settings)
        except AttemptRefusedError as error:
            return error.failure.message
        url = kube.path(kube.CORE, namespace, "pods")
        try:
            await self._client.create(f"{url}?dryRun=All&fieldValidation=Strict", body)
        except (kube.AlreadyExistsError, kube.NotFoundError):
            return None
        except kube.ApiError as error:
            if error.status not in _REFUSED:
                raise
            # A policy may be about an image that is known only when an attempt begins.
            by_policy = error.status == 403 or _DENIED in error.message  # noqa: PLR2004
            guess = by_policy and containers.has_computed_image(definition)
            if guess or any(words in error.message for words in _NO_REFUSAL):
                return None
            return error.message.removeprefix(f'Pod "{body["metadata"]["name"]}" is invalid: ')
        return None

    async def ensure_lease(self, run: RunRef, attempt: Attempt, pod: kube.Object) -> None:
        """Create the Lease of an attempt, unless it is there.

        Raises:
            LeaseBlockedError: the API server refuses it, or another client's Lease has its name.
            ApiError, OSError: the API server cannot be asked.
        """
        url = kube.path(kube.COORDINATION, run.namespace, "leases")
        try:
            await self._client.create(url, build_lease(run, attempt, pod["metadata"]["uid"]))
        except kube.AlreadyExistsError:
            name = pod["metadata"]["name"]
            try:
                lease = await self._client.get(f"{url}/{name}")
            except kube.NotFoundError:
                raise LeaseBlockedError("a Lease of this name was there a moment ago, and is gone") from None
            conflict = lease_conflict(lease, attempt, pod["metadata"]["uid"])
            if conflict:
                raise LeaseBlockedError(conflict.message) from None
        except kube.ApiError as error:
            if error.status not in _REFUSED:
                raise
            raise LeaseBlockedError(error.message) from error

    async def list_of(self, run: RunRef) -> list[kube.Object]:
        """All pods of a run, from the API server itself."""
        url = kube.path(kube.CORE, run.namespace, "pods")
        return await self._client.list_all(url, labelSelector=f"{labels.RUN_ID_LABEL}={run.uid}")

    async def read_pod(self, run: RunRef, key: PodKey) -> kube.Object | None:
        """The attempt's pod as it is now; None where there is none of this run."""
        name = pod_name(run.name, key.scheduled_event_id, key.attempt)
        try:
            pod = await self._client.get(kube.path(kube.CORE, run.namespace, "pods", name))
        except kube.NotFoundError:
            return None
        return pod if is_of(pod, run) else None

    async def read_lease(self, run: RunRef, key: PodKey) -> kube.Object | None:
        """The attempt's Lease as it is now."""
        name = pod_name(run.name, key.scheduled_event_id, key.attempt)
        try:
            return await self._client.get(kube.path(kube.COORDINATION, run.namespace, "leases", name))
        except kube.NotFoundError:
            return None

    async def request_cancel(self, run: RunRef, key: PodKey, reason: str) -> None:
        """Tell an attempt through its Lease that it should stop: the answer to its next heartbeat says so."""
        name = pod_name(run.name, key.scheduled_event_id, key.attempt)
        body = {"metadata": {"annotations": {labels.CANCEL_REQUESTED_ANNOTATION: reason}}}
        with suppress(kube.NotFoundError):
            await self._client.merge(kube.path(kube.COORDINATION, run.namespace, "leases", name), body)

    async def stop(self, run: RunRef, key: PodKey) -> None:
        """Have an attempt's containers stopped, with their grace period; the pod stays until its outcome is recorded."""
        pod = await self.read_pod(run, key)
        if pod is not None and not pod["metadata"].get("deletionTimestamp"):
            with suppress(kube.NotFoundError):
                url = kube.path(kube.CORE, run.namespace, "pods", pod["metadata"]["name"])
                await self._client.delete(url, uid=pod["metadata"]["uid"])

    async def release(self, pod: kube.Object, *, keep: Retention) -> None:
        """Let a pod go: its outcome is recorded, or nobody waits for it any more.

        A pod that still runs is stopped. If `keep` asks for it, one whose activity has ended stays readable for a while, or until
        its run is deleted; other containers in it that still run are stopped.
        """
        meta = pod["metadata"]
        expires = self._expires(pod) if keep is Retention.EXPIRE else None
        stays = keep is Retention.KEEP or expires is not None
        url = kube.path(kube.CORE, meta["namespace"], "pods", meta["name"])
        if not meta.get("deletionTimestamp") and not (stays and has_ended(pod)):
            if stays and activity_has_ended(pod):
                await self._stop_containers(pod)
            else:
                await self._client.delete(url, uid=meta["uid"])
        if held(pod):
            await self.drop_finalizer(pod, expires=expires)

    def _expires(self, pod: kube.Object) -> datetime | None:
        """Until when a pod stays that is released now; None if it does not stay, because nothing would delete it later."""
        ttl = self.settings.pod_ttl
        return now() + ttl if ttl and (held(pod) or labels.EXPIRES_LABEL in pod["metadata"].get("labels", {})) else None

    async def _stop_containers(self, pod: kube.Object) -> None:
        """Have the containers of a pod stopped, and keep the pod: its logs would go with it.

        A deadline that has passed does that. It is the one field of a running pod that may be changed for it.
        """
        meta = pod["metadata"]
        if (pod.get("spec") or {}).get("activeDeadlineSeconds") == 1:
            return
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
            {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1},
        ]
        url = kube.path(kube.CORE, meta["namespace"], "pods", meta["name"])
        try:
            await self._client.patch(url, operations)
        except kube.NotFoundError:
            return
        except kube.ApiError as error:
            if error.status not in _REFUSED:
                raise
            await self._client.delete(url, uid=meta["uid"])  # a policy refuses the change; the containers must stop

    async def release_by_name(self, seen: kube.Object, *, keep: bool) -> None:
        """Let a pod go that was seen a while ago: as it is now, if it is still there. `keep`: as its activity asks for."""
        meta = seen["metadata"]
        try:
            pod = await self._client.get(kube.path(kube.CORE, meta["namespace"], "pods", meta["name"]))
        except kube.NotFoundError:
            return
        if pod["metadata"]["uid"] == meta["uid"] and (held(pod) or not has_ended(pod)):
            wanted = retention_of(pod, succeeded=has_succeeded(pod)) if keep else Retention.DELETE
            await self.release(pod, keep=wanted)

    async def drop_finalizer(self, pod: kube.Object, *, expires: datetime | None = None) -> None:
        """Remove our finalizer and no other: the patch tests that it stands where it was seen, else looks again.

        Args:
            pod: The pod, as it was seen.
            expires: When to delete it; None: never because of its age.

        Raises:
            AttemptBlockedError: Another client keeps changing the pod, or a policy refuses the change; retry later.
        """
        meta = pod["metadata"]
        url = kube.path(kube.CORE, meta["namespace"], "pods", meta["name"])
        for _ in range(_LOOKS):
            finalizers = meta.get("finalizers") or []
            if labels.FINALIZER not in finalizers:
                return
            index = finalizers.index(labels.FINALIZER)
            where = f"/metadata/finalizers/{index}"
            operations = [
                {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
                {"op": "test", "path": where, "value": labels.FINALIZER},
                {"op": "remove", "path": where},
            ]
            if expires is not None:
                path = f"/metadata/labels/{labels.EXPIRES_LABEL.replace('/', '~1')}"
                operations.append({"op": "add", "path": path, "value": str(math.ceil(expires.timestamp()))})
            try:
                await self._client.patch(url, operations)
            except kube.NotFoundError:
                return
            except kube.InvalidError:
                try:
                    fresh = await self._client.get(url)
                except kube.NotFoundError:
                    return
                if fresh["metadata"]["uid"] != meta["uid"]:
                    return
                meta = fresh["metadata"]
            else:
                return
        raise AttemptBlockedError(f"pod {meta['name']} could not be let go")
