"""Starts of runs: convert the requests of clients to WorkflowRuns, create these, and wait until they have started.

The first workflow task of a run can be reserved: for the client that starts the run, or until an update is admitted.
"""

import base64
import hashlib
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson
from temporalio.api.common.v1 import Payload

from perdure.api import labels
from perdure.api.fields import MAX_RESOURCE_NAME
from perdure.api.json_values import MAX_DEPTH, nests_deeper
from perdure.api.phases import RunKind, kind_of
from perdure.api.times import nearest_duration
from perdure.controller.directory import Directory, Entry, Standing
from perdure.controller.dispatch.runs import WorkflowRuns
from perdure.controller.payloads import Blobs
from perdure.controller.workers import FollowedRun
from perdure.engine.cron import cron_mistake
from perdure.engine.payloads import plain
from perdure.engine.starts import StartExtras
from perdure.engine.state import PODS_QUEUE, WORKFLOWS_QUEUE
from perdure.frontend.deployments.rules import override_of
from perdure.frontend.errors import (
    TOO_LARGE,
    RpcError,
    activity_already_started,
    already_started,
    exhausted,
    invalid,
    namespace_not_found,
    operation_already_started,
    precondition,
    unavailable,
)
from perdure.frontend.matching.dispatch import requested_priority
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.values import UnfitError, check_size, duration, name, retry_policy
from perdure.frontend.runs.gateway import RunGateway
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.runtime.blobs import Reference, Room
from perdure.runtime.chains import extras_of, retry_policy_json

BEGIN_SECONDS = 20.0
"""How long a start request waits for the start of the run, in seconds."""
_FORGET_SECONDS = 5.0
_RESERVED_QUEUES = "/_sys/"
"""Prefix of a Temporal server's own task queues (common/tqid)."""
_MAX_EXTRAS = 128 * 1024
"""Bytes: the API server takes 256 KiB of annotations; of those are search attributes, and signals that pass to the next run."""
_NO_JSON = "Input: cannot be passed on as JSON"
_NOT_DNS = re.compile(r"[^a-z0-9]+")
_RESOURCE = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
TIMEOUTS = {
    "workflow_execution_timeout": "executionTimeout",
    "workflow_run_timeout": "runTimeout",
    "workflow_task_timeout": "taskTimeout",
}
"""Fields of Temporal's messages, and the matching fields of a spec."""


# Conversion


def requested_run(
    start: Any, types: Mapping[str, str], namespace: str, *, allow_blob: bool = False
) -> tuple[dict[str, Any], StartExtras]:
    """Build the spec of the WorkflowRun that a client requests, and its other parts.

    Args:
        start: A NewWorkflowExecutionInfo, or a request to start that has the same fields.
        types: The types of the registered search attributes, by name.
        namespace: The namespace.
        allow_blob: Whether a large input may be a blob, which needs a run as its owner.

    Raises:
        UnfitError: The request is not valid.
    """
    queue, workflow_type = start.task_queue.name, start.workflow_type.name
    by_name = queue == WORKFLOWS_QUEUE
    kept = input_of(start.input.payloads, by_name=by_name, allow_blob=allow_blob and not by_name)
    spec: dict[str, Any] = {"workflowId": start.workflow_id}
    if by_name:
        spec["workflow"], kept = {"name": workflow_named(workflow_type)}, plain(kept)
    else:
        spec["workflow"] = {"type": workflow_type, "taskQueue": queue_of_code(queue)}
    if kept is not None:
        spec["input"] = kept
    spec |= durations(start, TIMEOUTS)
    if start.HasField("retry_policy"):
        spec["retryPolicy"] = retry_policy_json(retry_policy(start.retry_policy))
    spec |= search_attributes(start, types, namespace)
    extras = StartExtras(
        header=data.header_to_json(start),
        memo=data.memo_to_json(start.memo),
        user_metadata=data.user_metadata_to_json(start.user_metadata) if start.HasField("user_metadata") else None,
        priority=requested_priority(start),
        versioning_override=override_of(start.versioning_override) if start.HasField("versioning_override") else None,
    )
    if by_name and extras.versioning_override is not None:
        raise UnfitError("VersioningOverride is not supported for Workflows, which are started by name")
    check_extras(extras)
    return spec, extras


def durations(message: Any, fields: Mapping[str, str]) -> dict[str, str]:
    """The durations in a message that are not zero, in the form of a spec: `fields` names their fields in both.

    Raises:
        UnfitError: A duration is not valid.
    """
    return {ours: nearest_duration(length) for field, ours in fields.items() if (length := duration(message, field))}


def search_attributes(message: Any, types: Mapping[str, str], namespace: str) -> dict[str, Any]:
    """The field of a spec for the search attributes in a message; empty if there are none.

    Raises:
        UnfitError: A search attribute is not valid.
    """
    found = data.attributes_to_json(message.search_attributes.indexed_fields, types, namespace)
    return {"searchAttributes": found} if found else {}


def _check_json(payload: Payload) -> None:
    """Reject a payload that claims to be JSON but cannot be stored as JSON."""
    if not payload.metadata.get("encoding", b"").startswith(b"json/"):
        return
    try:
        value = orjson.loads(payload.data)
    except orjson.JSONDecodeError as error:
        raise UnfitError(f"{_NO_JSON}: {error}") from None
    if nests_deeper(value):
        raise UnfitError(f"{_NO_JSON}: it nests more than {MAX_DEPTH} levels deep")


def input_of(payloads: Sequence[Payload], *, by_name: bool, allow_blob: bool = False, room: Room | None = None) -> Any:
    """Convert the input of a run to its stored form.

    Args:
        payloads: The payloads of the input.
        by_name: Whether the run is one of a Workflow, which reads the input as JSON.
        allow_blob: Whether the input may be a blob.
        room: The space in the status of the starting run; None: only for this input.

    Raises:
        UnfitError: The input is not valid for a run.
    """
    kept = data.to_json(payloads, allow_blob=allow_blob, room=room)
    if by_name:
        for payload in payloads:
            _check_json(payload)
    try:
        size = len(orjson.dumps(plain(kept) if by_name else kept))
    except (orjson.JSONEncodeError, RecursionError) as error:
        raise UnfitError(f"{_NO_JSON}: {error}") from None
    check_size(size)
    return kept


def cron_refused(schedule: str, *, by_name: bool) -> str:
    """Why a run cannot have a cron schedule; empty if it can, or has none.

    Args:
        schedule: The cron schedule.
        by_name: Whether the run is one of a Workflow, which only Schedules start repeatedly.
    """
    if schedule and by_name:
        return "CronSchedule is not supported for Workflows; create a Schedule that starts the Workflow."
    return cron_mistake(schedule, now())


def check_extras(extras: StartExtras) -> None:
    """Check that the annotations of a run are not too large.

    Raises:
        UnfitError: They are too large.
    """
    check_size(len(msgspec.json.encode(extras)), _MAX_EXTRAS, "Header and memo")


def queue_of_code(queue: str) -> str:
    """Read the task queue of a workflow for SDK workers; empty if there is none.

    Raises:
        UnfitError: No worker polls this task queue for workflows.
    """
    if queue.startswith(_RESERVED_QUEUES):
        raise UnfitError(f"task queue name cannot start with reserved prefix {_RESERVED_QUEUES}")
    if queue == WORKFLOWS_QUEUE or queue.startswith(PODS_QUEUE):
        raise UnfitError(f"TaskQueue: no worker polls {queue[:63]!r} for workflows")
    return name(queue, "TaskQueue", required=False)


def workflow_named(named: str) -> str:
    """Check and return the name of a Workflow.

    Raises:
        UnfitError: The name is not valid.
    """
    if len(named) > MAX_RESOURCE_NAME or not _RESOURCE.fullmatch(named):
        message = f"WorkflowType: the task queue `{WORKFLOWS_QUEUE}` runs Workflows by name, but {named!r} is not a valid name"
        raise UnfitError(message)
    return named


def workflow_run(
    namespace: str,
    name: str,
    spec: Mapping[str, Any],
    extras: StartExtras,
    *,
    policies: tuple[str, str],
    principal: str,
) -> kube.Object:
    """Build the WorkflowRun that a client starts.

    Args:
        namespace: Its namespace.
        name: Its name.
        spec: Its spec, without policies.
        extras: Its other parts.
        policies: The policies for a closed run and for an open run with the ID.
        principal: The user that the API server authenticated.
    """
    annotations = {labels.START_ANNOTATION: msgspec.json.encode(extras).decode()}
    if principal:
        annotations[labels.CREATED_BY_ANNOTATION] = principal
    reuse, conflict = policies
    return {
        "apiVersion": labels.API_VERSION,
        "kind": "WorkflowRun",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations},
        "spec": {**spec, "workflowIdReusePolicy": reuse, "workflowIdConflictPolicy": conflict},
    }


# Creation


class FirstTasks:
    """The runs whose first task is not dispatched yet."""

    def __init__(self, directory: Directory, open_runs: WorkflowRuns, follow: Callable[[FollowedRun], None]) -> None:
        """Create it without reservations.

        Args:
            directory: The entries of all runs.
            open_runs: The runs that this process works on.
            follow: Offers the task of a run to workers.
        """
        self._directory = directory
        self._open_runs = open_runs
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
        entry = self._directory.named(namespace, name)
        run = self._open_runs.get(entry.uid) if entry is not None else None
        if run is not None:
            self._follow(run)


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A workflow, standalone activity, or standalone Nexus operation that was started or is already open."""

    entry: Entry
    started: bool


class RunCreator:
    """Creates WorkflowRuns."""

    def __init__(
        self,
        *,
        client: kube.Client,
        blobs: Blobs,
        directory: Directory,
        open_runs: WorkflowRuns,
        runs: RunGateway,
        first_tasks: FirstTasks,
        ready: Callable[[], Awaitable[None]],
    ) -> None:
        """Create it without runs.

        Args:
            client: Creates the runs.
            blobs: Stores their large payloads.
            directory: The entries of all runs.
            open_runs: Gets the created runs.
            runs: Reads runs, and waits for their changes.
            first_tasks: Reserves their first tasks.
            ready: Waits until all runs are known.
        """
        self._client = client
        self._blobs = blobs
        self._directory = directory
        self._open_runs = open_runs
        self._runs = runs
        self._first_tasks = first_tasks
        self._ready = ready

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
        refusal = self._open_runs.capacity.refusal(namespace)
        if refusal is not None and self._directory.named(namespace, name) is None:
            raise exhausted(refusal.message)
        try:
            made = await self._create_with_blobs(namespace, body, large)
        except kube.AlreadyExistsError:
            made = await self._client.get(kube.path(kube.PERDURE, namespace, "workflowruns", name))
            if not is_from_request(made, body):
                message = f"WorkflowRun {name} exists and was not started by this request; start again with another request ID"
                raise precondition(message) from None
        except kube.NotFoundError:
            raise namespace_not_found(namespace) from None
        except kube.InvalidError as error:
            raise invalid(error.message) from error
        except kube.TooLargeError as error:
            raise invalid(TOO_LARGE) from error
        self._open_runs.add_created(made)
        return await self._wait_until_started(made)

    async def _create_with_blobs(self, namespace: str, body: kube.Object, large: Sequence[Reference]) -> kube.Object:
        """Create the blobs of a run, and then the run. If the run is rejected, remove the blobs.

        The run adopts the blobs first. If it is unknown whether the run exists, the removal of unclaimed blobs handles them.
        """
        saved = [found for each in large if (found := await self._blobs.save(namespace, each, None)) is not None]
        try:
            return await self._client.create(kube.path(kube.PERDURE, namespace, "workflowruns"), body)
        except (kube.AlreadyExistsError, kube.NotFoundError, kube.InvalidError, kube.TooLargeError):
            for each in saved:
                await self._blobs.remove(namespace, each)
            raise

    async def _wait_until_started(self, run: kube.Object) -> StartedRun:
        """Wait until the start of the run is recorded, or the run was rejected."""
        runs, directory, uid = self._runs, self._directory, run["metadata"]["uid"]

        def has_begun() -> bool:
            entry = directory.get(uid)
            return runs.state(uid) is not None or entry is None or entry.standing is Standing.CLOSED

        if not await self._runs.changes.wait_until(uid, has_begun, BEGIN_SECONDS):
            raise unavailable(f"the {_noun(run)} has not been started yet; the operator keeps trying")
        entry = directory.get(uid)
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
        await self._runs.delete(entry)
        # Until the deletion is known, a repeated request would find the run.
        await self._runs.changes.wait_until(entry.uid, lambda: self._directory.get(entry.uid) is None, _FORGET_SECONDS)
        other = self._directory.get(other_id) or next(
            (e for e in self._directory.sharing(entry) if not e.refused), None
        )
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
        await self._ready()
        await self._runs.catch_up(namespace)
        known = self._directory.newest(namespace, identity, kind=kind)
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
