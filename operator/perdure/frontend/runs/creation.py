"""Create the WorkflowRuns that clients start, and wait until they have started.

The first workflow task of a run can be reserved: for the client that starts the run, or until an update is admitted.
"""

import base64
import hashlib
import re
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perdure.api.phases import RunKind, kind_of
from perdure.controller.directory import Entry, Standing
from perdure.controller.workers import FollowedRun
from perdure.frontend.errors import (
    TOO_LARGE,
    RpcError,
    activity_already_started,
    already_started,
    invalid,
    namespace_not_found,
    operation_already_started,
    precondition,
    unavailable,
)
from perdure.frontend.runs.gateway import RunGateway
from perdure.kube import client as kube
from perdure.runtime.blobs import Reference
from perdure.runtime.chains import extras_of

BEGIN_SECONDS = 20.0
"""How long a start request waits for the start of the run, in seconds."""
_FORGET_SECONDS = 5.0
_NOT_DNS = re.compile(r"[^a-z0-9]+")


class FirstTasks:
    """The runs whose first task is not dispatched yet."""

    def __init__(self, runs: RunGateway, follow: Callable[[FollowedRun], None]) -> None:
        """Create it without reservations.

        Args:
            runs: The runs of the operator.
            follow: Offers the task of a run to workers.
        """
        self._runs = runs
        self._follow = follow
        self._reserved: set[tuple[str, str]] = set()

    def reserve(self, namespace: str, name: str) -> None:
        """Reserve the first task of a run, by the name of the WorkflowRun, until it is released."""
        self._reserved.add((namespace, name))

    def is_reserved(self, namespace: str, name: str) -> bool:
        """Whether the first task of a run is still reserved."""
        return (namespace, name) in self._reserved

    def release(self, namespace: str, name: str) -> None:
        """Let any worker have the first task of a run, if it was reserved."""
        if (namespace, name) not in self._reserved:
            return
        self._reserved.discard((namespace, name))
        entry = self._runs.named(namespace, name)
        run = self._runs.get(entry.uid) if entry is not None else None
        if run is not None:
            self._follow(run)


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A workflow, standalone activity, or standalone Nexus operation that was started or is already open."""

    entry: Entry
    started: bool


class RunCreator:
    """Creates WorkflowRuns."""

    def __init__(self, runs: RunGateway, first_tasks: FirstTasks) -> None:
        self._runs = runs
        self._first_tasks = first_tasks

    async def create(self, body: kube.Object, *, reserved: bool = False, large: Sequence[Reference] = ()) -> StartedRun:
        """Create a WorkflowRun, or find the one from an earlier try of the same request, and wait until it has started.

        Args:
            body: The WorkflowRun to create.
            reserved: Whether to reserve the first workflow task until `FirstTasks.release` is called.
            large: The large payloads of the run.

        Raises:
            RpcError: The run cannot be created, is rejected, or does not start in time.
        """
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        if reserved:  # before it is created, because the watch may show it before the response arrives
            self._first_tasks.reserve(namespace, name)
        started = None
        try:
            started = await self._create_or_find(body, large)
        finally:
            if started is None or started.entry.name != name:  # callers release only the returned run
                self._first_tasks.release(namespace, name)
        return started

    async def _create_or_find(self, body: kube.Object, large: Sequence[Reference]) -> StartedRun:
        namespace, name = body["metadata"]["namespace"], body["metadata"]["name"]
        try:
            made = await self._create_with_blobs(namespace, body, large)
        except kube.AlreadyExistsError:
            made = await self._runs.client.get(kube.path(kube.PERDURE, namespace, "workflowruns", name))
            if not is_from_request(made, body):
                message = f"WorkflowRun {name} exists and was not started by this request; start again with another request ID"
                raise precondition(message) from None
        except kube.NotFoundError:
            raise namespace_not_found(namespace) from None
        except kube.InvalidError as error:
            raise invalid(error.message) from error
        except kube.TooLargeError as error:
            raise invalid(TOO_LARGE) from error
        self._runs.add(made)
        return await self._wait_until_started(made)

    async def _create_with_blobs(self, namespace: str, body: kube.Object, large: Sequence[Reference]) -> kube.Object:
        """Create the blobs of a run, and then the run. If the run is rejected, remove the blobs.

        The run adopts the blobs first. If it is unknown whether the run exists, the removal of unclaimed blobs handles them.
        """
        saved = [found for each in large if (found := await self._runs.blobs.save(namespace, each, None)) is not None]
        try:
            return await self._runs.client.create(kube.path(kube.PERDURE, namespace, "workflowruns"), body)
        except (kube.AlreadyExistsError, kube.NotFoundError, kube.InvalidError, kube.TooLargeError):
            for each in saved:
                await self._runs.blobs.remove(namespace, each)
            raise

    async def _wait_until_started(self, run: kube.Object) -> StartedRun:
        """Wait until the start of the run is recorded, or the run was rejected."""
        runs, uid = self._runs, run["metadata"]["uid"]

        def has_begun() -> bool:
            entry = runs.entry(uid)
            return runs.state(uid) is not None or entry is None or entry.standing is Standing.CLOSED

        if not await self._runs.changes.wait_until(uid, has_begun, BEGIN_SECONDS):
            raise unavailable(f"the {_noun(run)} has not been started yet; the operator keeps trying")
        entry = runs.entry(uid)
        if entry is None:
            raise unavailable(f"the {_noun(run)} was deleted")
        state = runs.state(uid)
        by_name = "name" in (run["spec"].get("workflow") or {})
        if state is not None and (state.for_clients or by_name):
            return StartedRun(entry, started=True)
        return await self._refused(entry)

    async def _refused(self, entry: Entry) -> StartedRun:
        """Delete a run that only reports that its ID is in use."""
        view = await self._runs.view(entry)
        if view.state is not None and view.state.for_clients:
            return StartedRun(entry, started=True)
        status = view.object.get("status") or {}
        other_id = (status.get("output") or {}).get("runId", "")
        url = kube.path(kube.PERDURE, entry.namespace, "workflowruns", entry.name)
        await self._runs.client.delete(url, uid=entry.uid)
        # Until the deletion is known, a repeated request would find the run.
        await self._runs.changes.wait_until(entry.uid, lambda: self._runs.entry(entry.uid) is None, _FORGET_SECONDS)
        other = self._runs.entry(other_id) or next((e for e in self._runs.sharing(entry) if not e.refused), None)
        if other_id and other is not None:
            return StartedRun(other, started=False)
        failure = status.get("failure") or {}
        if entry.refused and other is not None:
            raise await self.id_in_use(other, "Workflow execution is already running.")
        raise invalid(str(failure.get("message") or f"the {_noun(view.object)} was not started"))

    async def existing(self, body: kube.Object, kind: RunKind, *, reuse: str, conflict: str) -> Entry | None:
        """Return the existing run that a start uses; None if it may create a new one.

        Args:
            body: The WorkflowRun that the start would create.
            kind: The kind of the run.
            reuse: The policy if a closed run has the ID.
            conflict: The policy if an open run has the ID.

        Raises:
            RpcError: The ID is in use.
        """
        name = body["metadata"]["name"]
        namespace, identity = body["metadata"]["namespace"], body["spec"]["workflowId"]
        await self._runs.ready()
        await self._runs.catch_up(namespace)
        known = self._runs.newest(namespace, identity, kind=kind)
        if known is None or (known.name == name and known.standing is Standing.WAITING):
            return None
        if known.name == name:
            return known
        if known.standing is not Standing.CLOSED:
            if conflict == "UseExisting":
                return known
            raise await self.id_in_use(known, "")
        if reuse == "RejectDuplicate" or (reuse == "AllowDuplicateFailedOnly" and known.phase == "Completed"):
            raise await self.id_in_use(known, "")
        return None

    async def id_in_use(self, entry: Entry, message: str) -> RpcError:
        """Build the error for an ID that is in use.

        Args:
            entry: The run with the ID.
            message: The message for a workflow; other kinds have only one message.
        """
        request_id = extras_of((await self._runs.view(entry)).object).request_id
        if entry.kind is RunKind.ACTIVITY:
            return activity_already_started(entry.uid, request_id)
        if entry.kind is RunKind.NEXUS_OPERATION:
            return operation_already_started(entry.uid, request_id)
        text = f"{message} WorkflowId: {entry.workflow_id}, RunId: {entry.uid}."
        return already_started(text, entry.uid, entry.first_uid, request_id)


def _noun(run: kube.Object) -> str:
    return kind_of(run["spec"]).noun


def is_from_request(run: kube.Object, body: kube.Object) -> bool:
    """Whether the same request created a WorkflowRun, and not another one with the same name."""
    found, wanted = run["spec"], body["spec"]
    same = found.get("workflowId") == wanted["workflowId"] and kind_of(found) is kind_of(wanted)
    return bool(same and extras_of(run).request_id == extras_of(body).request_id)


def run_name(workflow_id: str, request_id: str, *, kind: str = "") -> str:
    """The name of the WorkflowRun of a request. It is the same for a repeated request, so that the request finds the run.

    Args:
        workflow_id: The workflow ID, the activity ID, or the operation ID.
        request_id: The request ID; if it is empty, the name is unique.
        kind: Distinguishes kinds of runs that may have the same ID.
    """
    identity = f"{workflow_id}\0{request_id or uuid.uuid4().hex}" + (f"\0{kind}" if kind else "")
    ending = base64.b32encode(hashlib.sha256(identity.encode()).digest()).decode().lower()[:12]
    readable = _NOT_DNS.sub("-", workflow_id.lower())[:40].strip("-")
    return f"{readable or 'run'}-{ending}"
