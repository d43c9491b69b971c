"""The pods and Leases of attempts in the Kubernetes API: create, read, stop, and release them.

Each call can be repeated after a crash.

Activities with a Lease have a ServiceAccount. It is created in each namespace that needs it, and again after a deletion. A
ClusterRole of the chart allows it to read and patch Leases. An admission policy restricts this to the Lease of the pod.

A failure is recorded with the end of its container's log. Logs are read in the background, so that an unresponsive node delays
nothing else. If the log cannot be read soon, the failure is recorded without it.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from perdure.api import labels
from perdure.api.kinds.workflow import Activity, Retention
from perdure.api.kinds.workspace import Workspace
from perdure.api.names import pod_name
from perdure.api.times import format_time
from perdure.controller.expiry import KEPT_PODS, delete_expired
from perdure.controller.queue import FairPool
from perdure.controller.reconcile.refusals import is_temporary
from perdure.controller.state_versions import state_versions
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.state import PendingActivity, RunState
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.language import containers
from perdure.language.step_failures import StepError
from perdure.observe import metrics
from perdure.runtime.attempt_outcomes import forced_deletion_time, recheck_time, stop_deadline, tail
from perdure.runtime.attempts import (
    Attempt,
    AttemptRefusedError,
    PodSettings,
    RunRef,
    belongs_to_run,
    lease_conflict,
    pod_conflict,
)
from perdure.runtime.leases import build_lease
from perdure.runtime.pods.artifacts import stop_seconds, with_artifacts
from perdure.runtime.pods.builder import DEFAULT_CONTAINER_ANNOTATION, avoid_nodes, build_pod, build_trial, retention_of
from perdure.runtime.pods.services import belongs_to_pod, build_service, service_of
from perdure.runtime.pods.status import ContainerGroup, EndedContainer, PodStatus
from perdure.runtime.pods.workspaces import Volume, trial_volume, with_volumes

REFUSED = frozenset({400, 403, 422})
"""Status codes of permanently rejected requests."""
_NO_REFUSAL = ("exceeded quota", "does not support dry run", "is being terminated")
"""Parts of messages with which the API server temporarily rejects a dry run, or cannot execute it."""
DENIED = "denied request"
"""Part of the message of an admission policy."""
_COUNTED = "count/pods="
"""Part of the API server's message about a quota that also counts ended pods, including kept ones."""
_LOOKS = 3
"""How often a pod is read when its finalizers keep changing."""
_MAX_EARLIER: Final = 5
"""Maximum number of earlier attempts to check, because each needs a request."""


@dataclass(frozen=True, slots=True, order=True)
class PodKey:
    """The attempt to which a pod belongs."""

    scheduled_event_id: int
    attempt: int

    @classmethod
    def of(cls, activity: PendingActivity) -> "PodKey":
        """The key of the current attempt of an open activity."""
        return cls(activity.scheduled_event_id, activity.attempt)

    def due(self, state: RunState) -> PendingActivity | None:
        """The open activity with this current attempt; None if no activity waits for the attempt."""
        activity = state.activity(self.scheduled_event_id)
        return activity if activity is not None and activity.attempt == self.attempt else None


def key_of(pod: kube.Object) -> PodKey | None:
    """Read the attempt from the labels of a pod; None if it has none."""
    notes = pod["metadata"].get("annotations") or {}
    try:
        return PodKey(int(notes[labels.SCHEDULED_EVENT_ANNOTATION]), int(notes[labels.ATTEMPT_ANNOTATION]))
    except (KeyError, ValueError):
        return None


class AttemptBlockedError(Exception):
    """The pod of the attempt cannot be created for now; a retry may help."""

    lacks = "no pod for attempt {} yet"


class LeaseBlockedError(AttemptBlockedError):
    """The attempt has its pod, but its Lease cannot be created for now; a retry may help."""

    lacks = "no Lease for attempt {} yet, so its heartbeats and large results are not received"


class ServiceBlockedError(AttemptBlockedError):
    """The attempt has its pod, but its Service cannot be created for now; a retry may help."""

    lacks = "no Service for attempt {} yet, so that steps cannot reach it"


class AttemptImpossibleError(Exception):
    """The pod of the attempt can never be created, so the activity fails with `failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def is_of(pod: kube.Object, run: RunRef) -> bool:
    """Whether a pod is an attempt of the run: it belongs to the run, and has the name of the attempt's pod."""
    meta, key = pod["metadata"], key_of(pod)
    named = key is not None and meta["name"] == pod_name(run.name, key.scheduled_event_id, key.attempt)
    return named and meta["namespace"] == run.namespace and belongs_to_run(pod, run)


def has_ended(pod: kube.Object) -> bool:
    """Whether no container of the pod runs or will run anymore; the phase follows a little later."""
    status = PodStatus.of(pod)
    return (
        status.phase in {"Succeeded", "Failed"}
        or status.failed_init_container() is not None
        or (bool(status.containers) and all("terminated" in (c.get("state") or {}) for c in status.containers))
    )


def may_run(pod: kube.Object, now: datetime, *, trusts_node: bool = False) -> bool:
    """Whether a container of a pod that the operator stops may still run.

    Args:
        pod: The pod.
        now: The time.
        trusts_node: Whether only its node, or its removal, can prove that it has ended. Otherwise, it also counts as ended when
            its attempt would be lost because the node does not report: see `perdure.runtime.attempt_outcomes`.
    """
    status = PodStatus.of(pod)
    if has_ended(pod) or (status.delete_deadline is not None and status.node is None):
        return False
    lost = recheck_time(pod)
    return trusts_node or not (status.phase == "Unknown" or (lost is not None and lost <= now))


def stopping(pod: kube.Object) -> str:
    """Say that a pod has not ended yet: the predicate of a sentence."""
    status = PodStatus.of(pod)
    deadline = stop_deadline(pod)
    until = f", until {format_time(deadline)} at the latest" if deadline else ""
    return f"is still being stopped on node {status.node}{until}" if status.node else "is still being stopped"


def activity_has_ended(pod: kube.Object) -> bool:
    """Whether the activity has ended, regardless of other containers in its pod."""
    return _activity_end(pod) is not None


def has_succeeded(pod: kube.Object) -> bool:
    """Whether the pod, or at least the activity in it, has succeeded. Other containers may have been stopped."""
    if PodStatus.of(pod).stopped is not None:
        return False  # the exit code is the response of its program to SIGTERM
    end = _activity_end(pod)
    return (pod.get("status") or {}).get("phase") == "Succeeded" or (end is not None and end.exit_code == 0)


def _activity_end(pod: kube.Object) -> EndedContainer | None:
    main = (pod["metadata"].get("annotations") or {}).get(DEFAULT_CONTAINER_ANNOTATION)
    return None if main is None else ContainerGroup.of(pod, main).ended(PodStatus.of(pod))


def _has_node_and_log(pod: kube.Object) -> bool:
    """Whether a container of the pod has started, on a node that reports."""
    status = PodStatus.of(pod)
    return status.has_run() and status.phase != "Unknown"


def held(pod: kube.Object) -> bool:
    """Whether the pod has our finalizer."""
    return labels.POD_FINALIZER in (pod["metadata"].get("finalizers") or ())


def scope_of(run: RunRef) -> dict[str, str]:
    """The value of `run` in expressions of an activity."""
    return {"name": run.name, "namespace": run.namespace, "workflowId": run.workflow_id, "runId": run.uid}


class AttemptLeases:
    """Manages the Leases of attempts."""

    def __init__(self, client: kube.Client) -> None:
        self._client = client

    async def ensure(self, run: RunRef, attempt: Attempt, pod: kube.Object) -> None:
        """Create the Lease of an attempt, unless it exists.

        Raises:
            LeaseBlockedError: The API server rejects the Lease, or another client's Lease has its name.
            RequestError: The Kubernetes API request failed.
        """
        url = kube.path(kube.COORDINATION, run.namespace, "leases")
        try:
            lease = build_lease(run, attempt, pod["metadata"]["uid"])
            await self._client.create(url, {**lease, "metadata": state_versions().annotate(lease["metadata"])})
        except kube.AlreadyExistsError:
            name = pod["metadata"]["name"]
            try:
                lease = await self._client.get(f"{url}/{name}")
            except kube.NotFoundError:
                raise LeaseBlockedError("a Lease with this name was created and deleted a moment ago") from None
            conflict = lease_conflict(lease, attempt, pod["metadata"]["uid"])
            if conflict:
                raise LeaseBlockedError(conflict.message) from None
        except kube.ApiError as error:
            if error.status not in REFUSED:
                raise
            raise LeaseBlockedError(error.message) from error

    async def read(self, run: RunRef, key: PodKey) -> kube.Object | None:
        """Read the Lease of an attempt."""
        name = pod_name(run.name, key.scheduled_event_id, key.attempt)
        try:
            return await self._client.get(kube.path(kube.COORDINATION, run.namespace, "leases", name))
        except kube.NotFoundError:
            return None

    async def request_cancel(self, run: RunRef, key: PodKey, reason: str) -> None:
        """Request an attempt to stop through its Lease: the response to its next heartbeat has the request."""
        name = pod_name(run.name, key.scheduled_event_id, key.attempt)
        body = {"metadata": {"annotations": {labels.CANCEL_REQUESTED_ANNOTATION: reason}}}
        with suppress(kube.NotFoundError):
            await self._client.merge(kube.path(kube.COORDINATION, run.namespace, "leases", name), body)


class AttemptServices:
    """Manages the Kubernetes Services of the pods that are services of steps."""

    def __init__(self, client: kube.Client) -> None:
        self._client = client

    async def ensure(self, pod: kube.Object) -> None:
        """Create the Service of a pod, unless it exists.

        Raises:
            ServiceBlockedError: The API server rejects the Service, or another client's Service has its name.
            RequestError: The Kubernetes API request failed.
        """
        url = kube.path(kube.CORE, pod["metadata"]["namespace"], "services")
        try:
            await self._client.create(url, build_service(pod))
        except kube.AlreadyExistsError:
            name = service_of(pod)
            try:
                found = await self._client.get(f"{url}/{name}")
            except kube.NotFoundError:
                raise ServiceBlockedError("a Service with this name was created and deleted a moment ago") from None
            if not belongs_to_pod(found, pod):
                raise ServiceBlockedError(f"Service {name} exists, and does not belong to this attempt") from None
        except kube.ApiError as error:
            if error.status not in REFUSED:
                raise
            raise ServiceBlockedError(error.message) from error

    async def delete(self, pod: kube.Object) -> None:
        """Delete the Service of a pod that is not needed any more, if it has one."""
        name = service_of(pod)
        if not name:
            return
        url = kube.path(kube.CORE, pod["metadata"]["namespace"], "services", name)
        with suppress(kube.NotFoundError):
            found = await self._client.get(url)
            if belongs_to_pod(found, pod):
                await self._client.delete(url, uid=found["metadata"]["uid"])


_CHECK_AGAIN = timedelta(minutes=5)
"""Time after which the next attempt with a Lease re-creates a deleted ServiceAccount or RoleBinding."""


class ActivityIdentity:
    """Ensures that a namespace has the ServiceAccount and its RoleBinding."""

    def __init__(self, client: kube.Client, name: str, *, clock: Callable[[], datetime] = now) -> None:
        """Create it without known namespaces.

        Args:
            client: The client of the API server.
            name: Name of the ServiceAccount, the RoleBinding, and the ClusterRole.
            clock: Returns the time.
        """
        self._client = client
        self._name = name
        self._clock = clock
        self._checked: dict[str, datetime] = {}

    async def ensure(self, namespace: str) -> None:
        """Create missing objects.

        Raises:
            ApiError: The API server rejects an object.
        """
        checked = self._checked.get(namespace)
        if checked is not None and self._clock() < checked + _CHECK_AGAIN:
            return
        labels = {"app.kubernetes.io/managed-by": "perdure", "app.kubernetes.io/part-of": "perdure"}
        await self._create(
            kube.path(kube.CORE, namespace, "serviceaccounts"),
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": self._name, "labels": labels},
                "automountServiceAccountToken": False,
            },
        )
        await self._create(
            kube.path(kube.RBAC, namespace, "rolebindings"),
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": {"name": self._name, "labels": labels},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": self._name},
                "subjects": [{"kind": "ServiceAccount", "name": self._name, "namespace": namespace}],
            },
        )
        self._checked[namespace] = self._clock()

    def forget(self, namespace: str) -> None:
        """Check again next time, because the namespace may have been re-created."""
        self._checked.pop(namespace, None)

    async def _create(self, url: str, body: kube.Object) -> None:
        try:
            await self._client.create(url, body)
        except kube.AlreadyExistsError:
            return


_SLOTS, _EACH = 16, 8
"""Maximum number of logs that are read concurrently, in total and per namespace."""
_READ_SECONDS = 3.0
"""Timeout for reading the end of a log from a node."""
PATIENCE = timedelta(seconds=10)
"""How long the outcome of an attempt waits for its log, including the time in the queue."""


class Logs:
    """Reads the ends of logs, for all runs."""

    def __init__(self, client: kube.Client, settings: PodSettings) -> None:
        """`settings` tell in which namespaces logs are read."""
        self._client = client
        self._settings = settings
        self._pool = FairPool(slots=_SLOTS, each=_EACH)

    def read(self, pod: kube.Object, container: str) -> asyncio.Future[str | None]:
        """Read the end of a container's log; the future's result is None if the node does not provide it in time.

        It is also None in a namespace in which no logs are read.
        """
        if not self._settings.keeps_logs(pod["metadata"]["namespace"]):
            nothing: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
            nothing.set_result(None)
            return nothing
        future = self._pool.submit(pod["metadata"]["namespace"], lambda: self._read(pod, container))
        metrics.LOGS_WAITING.set(len(self._pool))
        return future

    async def _read(self, pod: kube.Object, container: str) -> str | None:
        metrics.LOGS_WAITING.set(len(self._pool))
        meta = pod["metadata"]
        url = kube.path(kube.CORE, meta["namespace"], "pods", meta["name"], "log")
        try:
            async with asyncio.timeout(_READ_SECONDS):
                text = await self._client.text(url, container=container, tailLines="200", limitBytes=str(1 << 20))
        except (kube.RequestError, TimeoutError):
            return None
        return tail(text) or None


class LogsOfRun:
    """The logs of one run."""

    def __init__(self, logs: Logs, wake: Callable[[], None]) -> None:
        """Create it without logs; `wake` requests another reconciliation of the run."""
        self._logs = logs
        self._wake = wake
        self._readings: dict[str, tuple[datetime, asyncio.Future[str | None]]] = {}

    def tail(self, pod: kube.Object, container: str, now: datetime) -> tuple[bool, str | None]:
        """Return whether the log is final, and its end. If it is not final, the run is woken once the log is read."""
        uid = pod["metadata"]["uid"]
        if uid not in self._readings:
            future = self._logs.read(pod, container)
            if not future.done():
                future.add_done_callback(lambda _: self._wake())
            self._readings[uid] = now, future
        since, future = self._readings[uid]
        if future.done():
            return True, None if future.cancelled() or future.exception() else future.result()
        return now - since >= PATIENCE, None

    def waits_until(self, pod: kube.Object | None) -> datetime | None:
        """When the outcome of a pod stops waiting for its log; None if it does not wait."""
        reading = self._readings.get(pod["metadata"]["uid"]) if pod is not None else None
        return None if reading is None or reading[1].done() else reading[0] + PATIENCE

    def forget(self, pod: kube.Object | None) -> None:
        """Drop the log of a pod whose outcome is recorded or no longer needed."""
        reading = self._readings.pop(pod["metadata"]["uid"], None) if pod is not None else None
        if reading is not None:
            reading[1].cancel()


class Pods:
    """Manages the pods and Leases of activities in the Kubernetes API."""

    def __init__(self, client: kube.Client, identity: ActivityIdentity, settings: PodSettings) -> None:
        self._client = client
        self._identity = identity
        self.settings = settings
        self.logs = Logs(client, settings)
        self.leases = AttemptLeases(client)
        self.services = AttemptServices(client)

    async def ensure(
        self,
        run: RunRef,
        attempt: Attempt,
        definition: Activity,
        volumes: Mapping[str, Volume],
        confirm: Callable[[], Awaitable[None]],
    ) -> kube.Object:
        """Create the pod of an attempt and, if it needs one, its Lease, or adopt existing ones from an earlier try.

        Args:
            run: The run.
            attempt: The attempt.
            definition: The definition of its activity.
            volumes: The volume of each workspace that the activity mounts.
            confirm: Called before the pod is created: raises an error if the run no longer needs it. What is read and created
                for the pod before that may take long.

        Raises:
            AttemptRefusedError, AttemptImpossibleError: The pod can never be created.
            AttemptBlockedError: A temporary obstacle blocks it.
            RequestError: The Kubernetes API request failed.
        """
        try:
            resolved = containers.resolve(definition, input=attempt.input, run=scope_of(run), attempt=attempt.attempt)
        except StepError as error:
            raise AttemptImpossibleError(error.failure) from error
        body = build_pod(run, attempt, self._with_files(resolved, volumes), self.settings)
        if definition.retry_on_another_node and attempt.attempt > 1:
            body = avoid_nodes(body, await earlier_nodes(self._client, run, attempt))
        await self._ensure_identity(run, body)
        await confirm()
        pod = await self._ensure_pod(run, attempt, body)
        if attempt.needs_lease:
            await self.leases.ensure(run, attempt, pod)
        if attempt.service:
            await self.services.ensure(pod)
        return pod

    async def _ensure_identity(self, run: RunRef, body: kube.Object) -> None:
        if body["spec"].get("serviceAccountName") != self.settings.service_account:
            return
        try:
            await self._identity.ensure(run.namespace)
        except kube.ApiError as error:
            message = f"the ServiceAccount for activities with a Lease cannot be created: {error.message}"
            raise AttemptBlockedError(message) from error

    async def _ensure_pod(self, run: RunRef, attempt: Attempt, body: kube.Object) -> kube.Object:
        url = kube.path(kube.CORE, run.namespace, "pods")
        try:
            # Strict: a typo in a field of `container` is an error here, as it is with kubectl.
            return await self._client.create(f"{url}?fieldValidation=Strict", body)
        except kube.AlreadyExistsError:
            try:
                pod = await self._client.get(f"{url}/{body['metadata']['name']}")
            except kube.NotFoundError:
                raise AttemptBlockedError("a pod with this name was created and deleted a moment ago") from None
            conflict = pod_conflict(pod, run, attempt)
            if conflict:
                raise AttemptBlockedError(conflict.message) from None
            return pod
        except kube.InvalidError as error:
            if DENIED in error.message:  # an admission policy or its quota, which may change
                raise AttemptBlockedError(error.message) from error
            message = f"activity `{attempt.activity_type}`: the API server refuses its pod: {error.message}"
            failure = Failure(kind=FailureKind.APPLICATION, type="InvalidPod", message=message, non_retryable=True)
            raise AttemptImpossibleError(failure) from error
        except kube.ApiError as error:
            if is_temporary(error):  # also a service account that does not exist yet
                self._identity.forget(run.namespace)
                if _COUNTED in error.message:
                    await delete_expired(self._client, KEPT_PODS, run.namespace, now(), limit=0)
                raise AttemptBlockedError(error.message) from error
            raise

    async def refusal(self, namespace: str, definition: Activity, workspaces: Mapping[str, Workspace]) -> str | None:
        """Return why the API server would reject the pods of an activity, in its own words; None if it would not, or cannot say.

        This is a dry run: no pod is created. A temporary obstacle, such as an exhausted quota, does not count.

        Raises:
            RequestError: The Kubernetes API request failed.
        """
        if definition.worker is not None:
            return None
        try:
            volumes = {name: trial_volume(workspace) for name, workspace in workspaces.items()}
            complete = self._with_files(containers.with_placeholders(definition), volumes)
            body = build_trial(namespace, complete, self.settings)
        except AttemptRefusedError as error:
            return error.failure.message
        url = kube.path(kube.CORE, namespace, "pods")
        try:
            await self._client.create(f"{url}?dryRun=All&fieldValidation=Strict", body)
        except (kube.AlreadyExistsError, kube.NotFoundError):
            return None
        except kube.ApiError as error:
            if error.status not in REFUSED:
                raise
            # A policy may check the image, which may be known only when an attempt begins.
            by_policy = error.status == 403 or DENIED in error.message  # noqa: PLR2004
            guess = by_policy and containers.has_computed_image(definition)
            if guess or any(words in error.message for words in _NO_REFUSAL):
                return None
            return error.message.removeprefix(f'Pod "{body["metadata"]["name"]}" is invalid: ')
        return None

    def _with_files(self, definition: Activity, volumes: Mapping[str, Volume]) -> Activity:
        """Add the workspaces and the preparation of artifacts to the pod of an activity."""
        mounted = with_volumes(definition, volumes, self.settings.run_as_user)
        return with_artifacts(mounted, self.settings.sidecar_image)

    async def running(self, namespace: str, run_id: str, now: datetime, spared: Collection[str]) -> kube.Object | None:
        """Find a pod of a closed run that may still run.

        Args:
            namespace: The namespace.
            run_id: UID of the run.
            now: The time.
            spared: Activities whose pods do not matter, by the values of their label.
        """
        url = kube.path(kube.CORE, namespace, "pods")
        async for pod in self._client.lists.each(url, labelSelector=f"{labels.RUN_ID_LABEL}={run_id}"):
            if pod["metadata"]["labels"].get(labels.ACTIVITY_LABEL) not in spared and may_run(pod, now):
                return pod
        return None

    async def list_of(self, run: RunRef) -> list[kube.Object]:
        """List all pods of a run from the API server."""
        url = kube.path(kube.CORE, run.namespace, "pods")
        return await self._client.lists.all(url, labelSelector=f"{labels.RUN_ID_LABEL}={run.uid}")

    async def read_pod(self, run: RunRef, key: PodKey) -> kube.Object | None:
        """Read the pod of an attempt; None if this run has none."""
        name = pod_name(run.name, key.scheduled_event_id, key.attempt)
        try:
            pod = await self._client.get(kube.path(kube.CORE, run.namespace, "pods", name))
        except kube.NotFoundError:
            return None
        return pod if is_of(pod, run) else None

    async def read_predecessor(self, run: RunRef, key: PodKey) -> kube.Object | None:
        """Read the pod of the last attempt before one that has a pod; None if no recent one has.

        An attempt that ended while it waited for its pod has none.
        """
        for number in _earlier(key.attempt):
            pod = await self.read_pod(run, PodKey(key.scheduled_event_id, number))
            if pod is not None:
                return pod
        return None

    async def stop(self, run: RunRef, key: PodKey) -> None:
        """Stop the containers of an attempt with their grace period. The pod stays until its outcome is recorded."""
        pod = await self.read_pod(run, key)
        if pod is not None and not pod["metadata"].get("deletionTimestamp"):
            with suppress(kube.NotFoundError):
                url = kube.path(kube.CORE, run.namespace, "pods", pod["metadata"]["name"])
                await self._client.delete(url, uid=pod["metadata"]["uid"], grace_seconds=stop_seconds(pod))

    async def release(self, pod: kube.Object, *, keep: Retention) -> datetime | None:
        """Release a pod whose outcome is recorded, or that no attempt needs.

        A running pod is stopped. Depending on `keep`, a pod that has run stays for a while, or until its run is deleted. It is
        then stopped without being deleted, and deleted if its node does not stop it in time.

        Returns:
            When to call this again, unless the pod ends before; None if it is released.
        """
        await self.services.delete(pod)
        meta = pod["metadata"]
        expires = self._expires(pod) if keep is Retention.EXPIRE else None
        stays = keep is Retention.KEEP or expires is not None
        url = kube.path(kube.CORE, meta["namespace"], "pods", meta["name"])
        if not meta.get("deletionTimestamp") and not (stays and has_ended(pod)):
            forced = forced_deletion_time(pod)
            if stays and activity_has_ended(pod):
                await self._stop_containers(pod)
            elif forced is not None and forced <= now():
                await self._client.delete(url, uid=meta["uid"], grace_seconds=1)  # its grace period is over
            elif stays and held(pod) and _has_node_and_log(pod):
                until = forced or await self._stop_activity(pod)
                if until is not None:
                    return until
            else:
                await self._client.delete(url, uid=meta["uid"], grace_seconds=stop_seconds(pod))
        if held(pod):
            await self.drop_finalizer(pod, expires=expires)
        return None

    def _expires(self, pod: kube.Object) -> datetime | None:
        """When to delete a pod that is released now; None to delete it immediately, because nothing would delete it later."""
        ttl = self.settings.pod_ttl
        return now() + ttl if ttl and (held(pod) or labels.EXPIRES_LABEL in pod["metadata"].get("labels", {})) else None

    async def _stop_activity(self, pod: kube.Object) -> datetime | None:
        """Stop an activity that still runs without deleting its pod, to keep its log.

        Returns:
            When to delete the pod if it has not ended by then; None if it was deleted.
        """
        notes = {**pod["metadata"]["annotations"], labels.STOPPED_ANNOTATION: format_time(now())}
        path = f"/metadata/annotations/{labels.STOPPED_ANNOTATION.replace('/', '~1')}"
        note = {"op": "add", "path": path, "value": notes[labels.STOPPED_ANNOTATION]}
        if not await self._stop_containers(pod, note):
            return None
        return forced_deletion_time({**pod, "metadata": {**pod["metadata"], "annotations": notes}})

    async def _stop_containers(self, pod: kube.Object, *more: kube.Object) -> bool:
        """Stop the containers of a pod without deleting it.

        This sets an expired `activeDeadlineSeconds`, the only field of a running pod that can be changed for this purpose.

        Args:
            pod: The pod.
            more: Further operations of the patch.

        Returns:
            False if the pod was deleted.
        """
        meta = pod["metadata"]
        if (pod.get("spec") or {}).get("activeDeadlineSeconds") == 1 and not more:
            return True
        operations = [
            {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
            {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 1},
            *more,
        ]
        url = kube.path(kube.CORE, meta["namespace"], "pods", meta["name"])
        try:
            await self._client.patch(url, operations)
        except kube.NotFoundError:
            return False
        except kube.ApiError as error:
            if error.status not in REFUSED:
                raise
            await self._client.delete(
                url, uid=meta["uid"], grace_seconds=stop_seconds(pod)
            )  # a policy rejects the change
            return False
        return True

    async def release_by_name(self, observed: kube.Object, *, keep: bool) -> datetime | None:
        """Read a pod that was seen a while ago, and release it if it still exists. `keep`: whether its activity keeps it.

        Returns:
            When to call this again, unless the pod ends before; None if it is released.
        """
        meta = observed["metadata"]
        try:
            pod = await self._client.get(kube.path(kube.CORE, meta["namespace"], "pods", meta["name"]))
        except kube.NotFoundError:
            return None
        if pod["metadata"]["uid"] != meta["uid"] or (has_ended(pod) and not held(pod)):
            return None
        # A service that runs when its run closes has not failed: its log is not kept.
        keep = keep and not (service_of(pod) and not has_ended(pod))
        wanted = retention_of(pod, succeeded=has_succeeded(pod)) if keep else Retention.DELETE
        return await self.release(pod, keep=wanted)

    async def drop_finalizer(self, pod: kube.Object, *, expires: datetime | None = None) -> None:
        """Remove only our finalizer. The patch tests its position; if that has changed, the pod is read again.

        Args:
            pod: The pod, as it was seen.
            expires: When to delete it; None: never delete it because of its age.

        Raises:
            AttemptBlockedError: Another client keeps changing the pod, or a policy rejects the change; retry later.
        """
        meta = pod["metadata"]
        url = kube.path(kube.CORE, meta["namespace"], "pods", meta["name"])
        for _ in range(_LOOKS):
            finalizers = meta.get("finalizers") or []
            if labels.POD_FINALIZER not in finalizers:
                return
            index = finalizers.index(labels.POD_FINALIZER)
            where = f"/metadata/finalizers/{index}"
            operations = [
                {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
                {"op": "test", "path": where, "value": labels.POD_FINALIZER},
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
        raise AttemptBlockedError(f"pod {meta['name']} could not be released")


async def earlier_nodes(client: kube.Client, run: RunRef, attempt: Attempt) -> list[str]:
    """Read the nodes on which the last attempts ran, without deleted pods.

    Args:
        client: Reads the pods.
        run: The run.
        attempt: The attempt that follows them.

    Raises:
        RequestError: The Kubernetes API request failed.
    """
    nodes: dict[str, None] = {}
    for number in _earlier(attempt.attempt):
        name = pod_name(run.name, attempt.scheduled_event_id, number)
        try:
            pod = await client.get(kube.path(kube.CORE, run.namespace, "pods", name))
        except kube.NotFoundError:
            continue
        node = pod["spec"].get("nodeName")
        if node and (pod["metadata"].get("labels") or {}).get(labels.RUN_ID_LABEL) == run.uid:
            nodes[node] = None
    return list(nodes)


def _earlier(attempt: int) -> range:
    """The numbers of the last attempts before one, the latest first."""
    return range(attempt - 1, max(attempt - 1 - _MAX_EARLIER, 0), -1)
