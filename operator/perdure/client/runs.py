"""Reads WorkflowRuns and their dependents: pods, Leases, children, logs, and segments of histories."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from perdure.api.labels import API_VERSION, RESERVED_PREFIXES, SCHEDULE_LABEL, SCHEDULE_TIMES_ANNOTATION
from perdure.api.names import DEFAULTS_NAME
from perdure.api.phases import kind_of
from perdure.api.reasons import ConditionReason
from perdure.client.errors import ClientError, ForbiddenError, NotFoundError
from perdure.kube import errors, paths
from perdure.lazy import lazily

with lazily():
    from perdure.runtime import chains, retention, revisions, segments
    from perdure.view.runs import open_work

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from perdure.client.requests import Object, Requests
    from perdure.runtime.retention import Policy
    from perdure.runtime.segments import AssembledHistory
    from perdure.view.runs.open_work import LiveState


class ClusterRuns:
    """Finds runs, and reads their dependents.

    Dependents are read in the namespace of the run, which can differ from that of the requests.
    """

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    @property
    def program(self) -> str:
        """The name of the command, for messages."""
        return self._requests.program

    # Finding runs

    async def get(self, name: str) -> Object:
        """Read a WorkflowRun.

        Raises:
            ClientError: The run does not exist, or cannot be read.
        """
        return await self._requests.read("WorkflowRun", "workflowruns", name)

    async def find(self, name: str | None, workflow_id: str | None) -> Object:
        """Read a WorkflowRun by its name or workflow ID: the open run, otherwise one in deletion, or the run that closed last.

        Raises:
            ClientError: The run does not exist, or cannot be read.
        """
        if workflow_id is not None:
            found = await self._of_workflow_id(workflow_id)
            if not found:
                raise NotFoundError(
                    f"no WorkflowRun with workflow ID `{workflow_id}` in namespace `{self._requests.namespace}`; list all "
                    f"runs with `{self._requests.program} list -A -o wide`, and choose the namespace with -n"
                )
            return max(found, key=_recency)
        assert name is not None, "it is named in one of the two ways"
        try:
            return await self.get(name)
        except NotFoundError as error:
            raise await self._hint(name) or error from None

    async def open_run(self, workflow_id: str) -> str | None:
        """Return the name of the open run of a workflow ID; None if no run is open, or without permission."""
        try:
            found = await self.find(None, workflow_id)
        except ClientError:
            return None
        return str(found["metadata"]["name"]) if is_open(found) else None

    async def _hint(self, name: str) -> NotFoundError | None:
        """Return a hint if a name is the workflow ID of a run, not its name."""
        try:
            found = await self._of_workflow_id(name)
        except ClientError:
            return None
        if not found:
            return None
        newest = sorted(found, key=_recency, reverse=True)[:3]
        runs = ", ".join(f"`{run['metadata']['name']}`" for run in newest)
        return NotFoundError(
            f"there is no WorkflowRun `{name}` in namespace `{self._requests.namespace}`, but that is the workflow ID of "
            f"{runs}; pass it with `-w {shlex.quote(name)}`"
        )

    async def _of_workflow_id(self, workflow_id: str) -> list[Object]:
        """Return the runs with a workflow ID (default: the name of the run). Standalone activities and operations have none."""
        found = {}
        for field in ("spec.workflowId", "metadata.name"):
            selector = f"{field}={paths.escaped(workflow_id)}"
            for run in await self._requests.list_objects(
                "workflowruns", self._requests.namespace, fieldSelector=selector
            ):
                if kind_of(run["spec"]).standalone:
                    continue
                if (run["spec"].get("workflowId") or run["metadata"]["name"]) == workflow_id:
                    found[run["metadata"]["uid"]] = run
        return list(found.values())

    async def of_schedules(self, schedule: str | None = None, *, everywhere: bool = False) -> list[Object]:
        """Read the runs of one Schedule, or of all; none if the user has no permission.

        Raises:
            ClientError: The objects cannot be read.
        """
        selector = SCHEDULE_LABEL if schedule is None else f"{SCHEDULE_LABEL}={schedule}"
        namespace = None if everywhere else self._requests.namespace
        try:
            return await self._requests.list_objects("workflowruns", namespace, labelSelector=selector)
        except ForbiddenError:
            return []

    async def later(self, run: Object) -> list[Object]:
        """Read the later runs that reset or retry a run, or the run that it resets or retries itself, directly or one another.

        Raises:
            ClientError: The runs cannot be read.
        """
        workflow_id = run["spec"].get("workflowId") or run["metadata"]["name"]
        return [each for each in await self._of_workflow_id(workflow_id) if chains.repeats(each, run)]

    async def retries(self, run: Object) -> list[Object]:
        """Read the same runs of a closed run; none for an open one, or if they cannot be read."""
        if not (run.get("status") or {}).get("completionTime"):
            return []
        try:
            return await self.later(run)
        except ClientError:
            return []

    # Objects of a run

    async def live_state(self, run: Object) -> LiveState | None:
        """Read a run's pods with their Leases, the reasons for rejected pods, and its children.

        Returns:
            The result; None if the user has no permission, or the API is not available.
        """
        requests = self._requests
        found: list[list[Object]] = []
        for group, plural, selectors in (
            (paths.CORE, "pods", {"labelSelector": open_work.attempts_selector(run)}),
            (paths.COORDINATION, "leases", {"labelSelector": open_work.attempts_selector(run)}),
            (paths.CORE, "events", {"fieldSelector": open_work.refused_pods_selector(run)}),
            (paths.PERDURE, "workflowruns", {"labelSelector": open_work.children_selector(run)}),
        ):
            if plural == "workflowruns" and not (run.get("status") or {}).get("pendingChildren"):
                continue
            try:
                url = paths.path(group, run["metadata"]["namespace"], plural)
                found.append(await requests.client.list_all(url, **selectors))
            except errors.ApiError:
                if plural == "pods":
                    return None
                found.append([])
            except errors.NoResponseError:
                return None
        return open_work.read_live_state(run, *found)

    async def events(self, run: Object) -> list[Object]:
        """Read the Events about a run; none if the user has no permission, or the API server does not respond."""
        url = paths.path(paths.CORE, run["metadata"]["namespace"], "events")
        about = f"involvedObject.uid={run['metadata']['uid']}"
        try:
            found: list[Object] = await self._requests.client.list_all(url, fieldSelector=about)
        except errors.RequestError:
            return []
        return found

    async def pods(self, run: Object) -> list[Object]:
        """Read the pods of a run's attempts.

        Raises:
            ClientError: The objects cannot be read.
        """
        requests = self._requests
        url = paths.path(paths.CORE, run["metadata"]["namespace"], "pods")
        found: list[Object] = await requests.perform(
            requests.client.list_all(url, labelSelector=open_work.attempts_selector(run))
        )
        return found

    async def children(self, run: Object) -> list[Object]:
        """Read the children of a run.

        Raises:
            ClientError: The objects cannot be read.
        """
        namespace = run["metadata"]["namespace"]
        return await self._requests.list_objects(
            "workflowruns", namespace, labelSelector=open_work.children_selector(run)
        )

    async def log(self, pod: str, **query: str) -> AsyncIterator[bytes]:
        """Read the lines of a pod's log.

        Raises:
            NotFoundError: The pod no longer exists.
            UnreachableError: The connection broke, or the node does not respond.
            ClientError: The log cannot be read.
        """
        requests = self._requests
        url = paths.path(paths.CORE, requests.namespace, "pods", pod, "log")
        try:
            async for line in requests.client.lines(url, **query):
                yield line
        except errors.NotFoundError as error:
            raise NotFoundError(error.message) from error
        except errors.ApiError as error:
            raise requests.refused(error.status, error.message) from error
        except errors.NoResponseError as error:
            raise requests.unreachable(error) from error

    async def history(self, run: Object) -> AssembledHistory:
        """Read the whole history of a run, sealed segments included, and report its damage.

        Raises:
            ClientError: The segments cannot be read.
        """
        found: list[Object] = []
        if ((run.get("status") or {}).get("history") or {}).get("segments"):
            of_run = f"spec.workflowRun.runId={run['metadata']['uid']}"
            namespace = run["metadata"]["namespace"]
            found = await self._requests.list_objects("historysegments", namespace, fieldSelector=of_run)
        return segments.gather(run, found)

    async def with_definition(self, run: Object) -> Object:
        """Return the run with the definition of its WorkflowRevision in its status, if that can be read.

        Raises:
            UnreachableError: The API server does not respond.
        """
        status = run.get("status") or {}
        reference = revisions.Reference.of(status)
        if reference is None:
            return run
        try:
            url = paths.path(paths.PERDURE, run["metadata"]["namespace"], "workflowrevisions", reference.name)
            found = await self._requests.client.get(url)
        except errors.ApiError:  # deleted, or no permission: the rest of the run can be shown
            return run
        except errors.NoResponseError as error:
            raise self._requests.unreachable(error) from error
        if revisions.fault(found) or revisions.Content.of(found).reference() != reference:
            return run
        return {**run, "status": {**status, "definition": found["spec"]["definition"]}}

    async def retention(self, run: Object) -> Policy | None:
        """Read how long the namespace of a run keeps runs; None if the user may not read its WorkflowDefaults.

        Raises:
            UnreachableError: The API server does not respond.
        """
        url = paths.path(paths.PERDURE, run["metadata"]["namespace"], "workflowdefaults", DEFAULTS_NAME)
        try:
            found = await self._requests.client.get(url)
        except errors.NotFoundError:
            return retention.Policy()
        except errors.ApiError:
            return None
        except errors.NoResponseError as error:
            raise self._requests.unreachable(error) from error
        return retention.Policy.of(found.get("spec") or {})

    async def with_history(self, run: Object) -> Object:
        """Return the run with its definition and its whole remaining history in its status.

        Raises:
            ClientError: The segments cannot be read.
        """
        run = await self.with_definition(run)
        status = run.get("status") or {}
        history = status.get("history") or {}
        if not history.get("segments"):
            return run
        past = await self.history(run)
        return {**run, "status": {**status, "history": {**history, "events": past.events}}}


def is_open(run: Object) -> bool:
    """Return whether a run has not ended. A run in deletion has, even while a finalizer keeps its object."""
    return not (run.get("status") or {}).get("completionTime") and not run["metadata"].get("deletionTimestamp")


def _recency(run: Object) -> tuple[bool, bool, bool, str, str]:
    """Return the sort key of the runs of a workflow ID: the open run is last, the run that closed last is before it."""
    status = run.get("status") or {}
    refused = (status.get("failure") or {}).get("type") == ConditionReason.WORKFLOW_EXECUTION_ALREADY_STARTED
    return (
        is_open(run),
        not status.get("completionTime"),
        not refused and bool(status.get("startTime")),
        str(status.get("completionTime") or ""),
        str(run["metadata"].get("creationTimestamp") or ""),
    )


_MAX_PREFIX = 180
"""Maximum characters of a name before the suffix from the API server."""


def copy_of(run: Object, spec: Object, name: str | None) -> Object:
    """Build a run with a spec, and with the user's labels and the scheduled time of another run.

    Args:
        run: The other run.
        spec: The spec.
        name: The name of the new run; None for a generated one.
    """
    meta = run["metadata"]
    user_labels = {k: v for k, v in (meta.get("labels") or {}).items() if not k.startswith(RESERVED_PREFIXES)}
    called = {"name": name} if name is not None else {"generateName": f"{meta['name'][:_MAX_PREFIX]}-"}
    times = {k: v for k, v in (meta.get("annotations") or {}).items() if k == SCHEDULE_TIMES_ANNOTATION}
    return {
        "apiVersion": API_VERSION,
        "kind": "WorkflowRun",
        "metadata": {
            **called,
            **({"labels": user_labels} if user_labels else {}),
            **({"annotations": times} if times else {}),
        },
        "spec": spec,
    }
