"""Move a namespace to another cluster: what is exported, what cannot move, and how it is created there.

Both clusters must never work on the same run. So only paused runs and Schedules are exported, and they are paused where they are
created; the user deletes them in the first cluster, and unpauses them in the second one.

A created run has a new UID, and nothing starts for it: its label says that it was restored, so without its status it does not
begin, and with its status the operator reports that it belongs to another object. Then the import accepts this status.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, Final

from perdure.api.json_values import mapping, mappings
from perdure.api.labels import ACCEPT_STATE_ANNOTATION, PARENT_ANNOTATION
from perdure.api.phases import PendingActivityState, Phase
from perdure.client.cluster import Cluster
from perdure.client.errors import ClientError, ExitCode, NotFoundError
from perdure.client.requests import Object
from perdure.lazy import lazily

with lazily():
    from perdure.runtime import commits, status_encoding

KINDS: Final = {
    "WorkflowRevision": "workflowrevisions",
    "Workflow": "workflows",
    "WorkflowDefaults": "workflowdefaults",
    "RetryPolicy": "retrypolicies",
    "WorkflowLimit": "workflowlimits",
    "Payload": "payloads",
    "Schedule": "schedules",
    "WorkflowRun": "workflowruns",
}
"""The plural names of the kinds that move, in the order in which they are created.

Revisions are first: an operator writes that of a Workflow as soon as it sees the Workflow."""
_OF_THE_CLUSTER: Final = {"number", "stateVersion"}
"""The fields of a revision that depend on the cluster which stored it; its name and its hash do not."""
_AT_WORK: Final = {PendingActivityState.STARTED, PendingActivityState.CANCEL_REQUESTED}
_DAMAGED: Final = "StateDamaged"
_PAUSE: Final = 0.5
"""Seconds between two reads of a run."""
_SECONDS: Final = 60.0
"""How long an operator may take to look at a created run."""


class UnmovableError(ClientError):
    """Something cannot be moved now, or not at all."""

    status = ExitCode.NO


async def export(cluster: Cluster, *, skip: Callable[[str], None] | None = None) -> Object:
    """Read all objects of a namespace that can be created in another cluster.

    Args:
        cluster: The cluster.
        skip: Reports why a run or a Schedule is left out; None: nothing may be left out.

    Returns:
        A List of manifests.

    Raises:
        UnmovableError: Something cannot be moved.
        ClientError: The objects cannot be read.
    """
    found = {kind: await cluster.list(plural) for kind, plural in KINDS.items()}
    found["WorkflowRun"] = [run for run in found["WorkflowRun"] if not _is_closed(run)]
    obstacles: list[str] = []
    items: list[Object] = []
    for kind, objects in found.items():
        for obj in objects:
            if why := next(_obstacles(kind, obj), None):
                obstacles.append(f"{kind} `{obj['metadata']['name']}` {why}")
            else:
                items.append(_manifest(kind, obj))
    if obstacles and skip is None:
        raise UnmovableError("\n".join([f"namespace `{cluster.namespace}` cannot be moved:", *obstacles]))
    for each in obstacles:
        assert skip is not None
        skip(each)
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _is_closed(run: Object) -> bool:
    return bool(mapping(run.get("status")).get("completionTime"))


def _obstacles(kind: str, obj: Object) -> Iterator[str]:
    """Why an object cannot move, each as the end of a sentence."""
    spec, status = mapping(obj.get("spec")), mapping(obj.get("status"))
    if kind == "Schedule":
        if not (spec.get("paused") or status.get("paused")):
            yield "is not paused; pause it with `perdure schedule pause`"
    elif kind == "WorkflowRun":
        yield from _obstacles_of_run(obj, status)


def _obstacles_of_run(run: Object, status: Any) -> Iterator[str]:
    if PARENT_ANNOTATION in mapping(run["metadata"].get("annotations")):
        yield "is a child, which is tied to the run ID of its parent; wait until it has ended"
    if children := mappings(status.get("pendingChildren")):
        yield f"waits for its child `{children[0].get('workflowId')}`, which is tied to its run ID; wait until it has ended"
    for activity in mappings(status.get("pendingActivities")):
        if activity.get("state") in _AT_WORK:
            yield f"has a running attempt of step `{activity.get('step')}`; wait until it has ended"
    state, history = mapping(status.get("state")), mapping(status.get("history"))
    if state.get("operations"):
        yield "waits for a Nexus operation, whose result is sent to its run ID; wait until that has ended"
    if state.get("callbacks"):
        yield "completes a Nexus operation of another run, which would not get the result; wait until it has ended"
    if state.get("code") and history.get("segments"):
        yield "is code with a history of several objects, which belong to its run ID: code could not be replayed"
    if status.get("phase") != Phase.PAUSED:
        yield "is not paused; pause it with `perdure pause`"


def _manifest(kind: str, obj: Object) -> Object:
    """What is created of an object; of a run, with its status."""
    meta = {key: value for key in ("name", "labels", "annotations") if (value := obj["metadata"].get(key))}
    spec = obj.get("spec")
    if kind == "Schedule":
        spec = {**mapping(spec), "paused": True}
    manifest: Object = {"apiVersion": obj["apiVersion"], "kind": kind, "metadata": meta}
    rest = {key: value for key, value in obj.items() if key not in {"apiVersion", "kind", "metadata", "status", "spec"}}
    if spec is not None:
        manifest["spec"] = spec
    if kind == "WorkflowRun":
        manifest["status"] = obj["status"]
    return {**manifest, **rest}


async def import_(cluster: Cluster, exported: Object, *, report: Callable[[str], None]) -> int:
    """Create what was exported, and have the operators accept the runs. All runs and Schedules stay paused.

    Args:
        cluster: The other cluster.
        exported: The List of manifests.
        report: Reports each run that continues.

    Returns:
        The number of runs.

    Raises:
        UnmovableError: An object exists with another content, or no operator looks at a created run.
        ClientError: The objects cannot be created.
    """
    items = [each for each in mappings(exported.get("items")) if each.get("kind") in KINDS]
    if not items:
        raise ClientError("the file has no objects of Perdure; write it with `perdure move export`")
    missing = [each for each in items if not await _exists(cluster, each)]
    for each in missing:
        await _create(cluster, each)
    runs = [each["metadata"]["name"] for each in missing if each["kind"] == "WorkflowRun"]
    for name in runs:
        await _accept(cluster, name)
        report(name)
    return len(runs)


async def _exists(cluster: Cluster, manifest: Object) -> bool:
    """Whether an object exists as it would be created.

    Raises:
        UnmovableError: It exists, and is not the same.
    """
    kind, name = manifest["kind"], manifest["metadata"]["name"]
    try:
        found = await cluster.read(kind, KINDS[kind], name)
    except NotFoundError:
        return False
    if kind in {"WorkflowRun", "Schedule"} or _content(kind, found) != _content(kind, manifest):
        raise UnmovableError(
            f"{kind} `{name}` exists in namespace `{cluster.namespace}`, so nothing was created: move to a namespace "
            "without it"
        )
    return True


def _content(kind: str, obj: Object) -> Any:
    """What must be the same in both clusters: of a revision, its definition and its Workflow, as each cluster numbers its own."""
    spec = obj.get("spec")
    if kind != "WorkflowRevision":
        return spec
    return {key: value for key, value in mapping(spec).items() if key not in _OF_THE_CLUSTER}


async def _create(cluster: Cluster, manifest: Object) -> None:
    kind, meta = manifest["kind"], manifest["metadata"]
    if kind != "WorkflowRun":
        await cluster.create(KINDS[kind], manifest)
        return
    labelled = {**meta, "labels": {**mapping(meta.get("labels")), commits.RESTORED_LABEL: "perdure-move"}}
    await cluster.create(KINDS[kind], {**manifest, "metadata": labelled, "status": {}})
    status = status_encoding.encode(manifest["status"])
    # The operator may have reported by now that the run has no status.
    await cluster.change(
        kind, KINDS[kind], meta["name"], lambda found: {**found, "status": status}, subresource="status"
    )


async def _accept(cluster: Cluster, name: str) -> None:
    """Let a run continue from its status, once an operator has reported that it belongs to another object.

    Raises:
        UnmovableError: No operator has done so.
    """

    def accepted(run: Object) -> Object | None:
        annotations = {**mapping(run["metadata"].get("annotations")), ACCEPT_STATE_ANNOTATION: fingerprint}
        return {**run, "metadata": {**run["metadata"], "annotations": annotations}}

    fingerprint = ""
    deadline = asyncio.get_running_loop().time() + _SECONDS
    while asyncio.get_running_loop().time() < deadline:
        conditions = mappings(mapping((await cluster.runs.get(name)).get("status")).get("conditions"))
        message = next((str(each.get("message")) for each in conditions if each.get("reason") == _DAMAGED), "")
        if not message and fingerprint:
            return
        # The first report may be about the run without its status.
        if ACCEPT_STATE_ANNOTATION in message and (found := message.rsplit("`", 2)[1]) != fingerprint:
            fingerprint = found
            await cluster.change("WorkflowRun", KINDS["WorkflowRun"], name, accepted)
        await asyncio.sleep(_PAUSE)
    raise UnmovableError(
        f"no operator has looked at `{name}` within a minute: is one running that serves namespace `{cluster.namespace}`? "
        "The run does nothing until its status is accepted; delete what was created, and import again"
    )
