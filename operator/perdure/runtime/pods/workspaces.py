"""Workspaces: the PersistentVolumeClaim of a run, and an activity whose pod mounts the volumes that it lists.

A workspace is a short form of settings in `podTemplate`, so it needs no permissions of its own, except for creating claims.

The files of a completed step are part of its result. So a claim is created only for a run that keeps no such result: a run that
continued on an empty volume would compute something else, or fail far from the cause (argo-workflows#4275).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from perdure.api import labels
from perdure.api.kinds.workflow import Activity, PodTemplate
from perdure.api.kinds.workspace import AccessMode, ClaimRetention, Workspace, WorkspaceMount, WorkspaceRetention
from perdure.api.labels import API_VERSION
from perdure.api.names import claim_name, label_value
from perdure.api.pods import WORKSPACE_VOLUME
from perdure.engine import events as ev
from perdure.runtime.attempts import KubeObject, RunRef, definition_name, without_reserved
from perdure.runtime.pods.commands import list_in, script_container

_ANY_NODE: Final = {AccessMode.READ_WRITE_MANY, AccessMode.READ_ONLY_MANY}
_HOSTNAME: Final = "kubernetes.io/hostname"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """The volume of a workspace, for the pods of one run."""

    source: Mapping[str, Any]
    """The volume as in `volumes` of a pod, without a name."""
    label: str = ""
    """A label for the pods that use it; empty if it is not shared."""
    one_node: bool = False
    """Whether pods that use it at the same time must be on the same node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceUse:
    """Which activities of a run mount which workspaces."""

    activities: Mapping[str, Activity]
    """The definitions of the activities, by `definition_name`."""
    workspaces: Mapping[str, Workspace]
    """The workspaces, by name."""


def build_claim(run: RunRef, original: tuple[str, str], workspace: Workspace) -> KubeObject:
    """Build the PersistentVolumeClaim of a workspace.

    Args:
        run: The run that owns it.
        original: Name and UID of the first run of the history of `run`, which a reset does not change.
        workspace: The workspace, with a template.

    Returns:
        A v1 PersistentVolumeClaim to create.
    """
    template = workspace.volume_claim_template
    assert template is not None
    metadata = template.metadata.dump() if template.metadata is not None else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": claim_name(*original, workspace.name),
            "namespace": run.namespace,
            "labels": {**without_reserved(metadata.get("labels", {})), **claim_labels(run, workspace)},
            "annotations": {**without_reserved(metadata.get("annotations", {})), **claim_annotations(workspace)},
            "ownerReferences": [claim_owner(run)],
        },
        "spec": template.spec.dump(),
    }


def claim_labels(run: RunRef, workspace: Workspace) -> dict[str, str]:
    """Return the labels of a claim, which identify its run and the retention when that run closes."""
    retention = workspace.retention or WorkspaceRetention()
    kept = ClaimRetention.DELETE not in {retention.on_success, retention.on_failure}
    return {
        labels.RUN_LABEL: label_value(run.name),
        labels.RUN_ID_LABEL: run.uid,
        labels.WORKSPACE_LABEL: workspace.name,
        labels.STAYS_UNTIL_LABEL: labels.RUN_DELETED if kept else labels.RUN_CLOSED,
    }


def claim_annotations(workspace: Workspace) -> dict[str, str]:
    """Return the annotation of a claim with its retention when its run closes."""
    retention = workspace.retention or WorkspaceRetention()
    return {labels.CLAIM_RETENTION_ANNOTATION: f"{retention.on_success}/{retention.on_failure}"}


def is_deleted_after(claim: KubeObject, *, succeeded: bool) -> bool:
    """Whether a claim is deleted when its run has closed.

    Args:
        claim: The claim, or its metadata; an annotation contains the retention.
        succeeded: Whether the run has succeeded.
    """
    retention = str((claim["metadata"].get("annotations") or {}).get(labels.CLAIM_RETENTION_ANNOTATION, ""))
    on_success, _, on_failure = retention.partition("/")
    return (on_success if succeeded else on_failure) == ClaimRetention.DELETE


def pods_label(claim: str) -> str:
    """The label of the pods that use a claim.

    Args:
        claim: Name of the claim.
    """
    return f"{labels.CLAIM_PREFIX}{label_value(claim)}"


def claim_owner(run: RunRef) -> KubeObject:
    """The owner reference of a claim: the garbage collector deletes it with the last run that uses it."""
    return {
        "apiVersion": API_VERSION,
        "kind": "WorkflowRun",
        "name": run.name,
        "uid": run.uid,
        "blockOwnerDeletion": False,
    }


def volume_of(claim: KubeObject) -> Volume:
    """Return the volume of a claim from the API server.

    Args:
        claim: A v1 PersistentVolumeClaim.
    """
    name = claim["metadata"]["name"]
    modes = set((claim.get("spec") or {}).get("accessModes") or ())
    return Volume(
        source={"persistentVolumeClaim": {"claimName": name}},
        label=pods_label(name),
        one_node=AccessMode.READ_WRITE_ONCE in modes and not modes & _ANY_NODE,
    )


def ephemeral_volume(workspace: Workspace) -> Volume | None:
    """Return the volume of a workspace that is separate for each pod; None if pods share a volume."""
    return Volume(source={"emptyDir": workspace.empty_dir}) if workspace.empty_dir is not None else None


def trial_volume(workspace: Workspace) -> Volume:
    """Return the volume of a workspace for a dry run of a pod."""
    existing = workspace.persistent_volume_claim
    claim = {"metadata": {"name": existing.claim_name if existing is not None else workspace.name}}
    return ephemeral_volume(workspace) or volume_of(claim)


def with_volumes(definition: Activity, volumes: Mapping[str, Volume], fs_group: int | None) -> Activity:
    """Return the activity as a pod template that mounts its workspaces.

    Args:
        definition: The activity; not changed.
        volumes: The volume of each workspace that it lists.
        fs_group: The group that owns new files of the volumes, unless the template sets one; None leaves it to the cluster.
    """
    if not definition.workspaces:
        return definition
    template = template_of(definition)
    spec, metadata = template["spec"], template.get("metadata") or {}
    main = spec["containers"][0]
    used = {mount.name: volumes[mount.name] for mount in definition.workspaces}
    added = [{"name": f"{WORKSPACE_VOLUME}{name}", **volume.source} for name, volume in used.items()]
    spec["volumes"] = [*list_in(spec, "volumes"), *added]
    main["volumeMounts"] = [*list_in(main, "volumeMounts"), *map(_mount, definition.workspaces)]
    shared = {volume.label: "" for volume in used.values() if volume.label}
    metadata["labels"] = {**(metadata.get("labels") or {}), **shared}
    one_node = [volume.label for volume in used.values() if volume.one_node]
    if one_node:
        _keep_together(spec, one_node)
    if fs_group is not None and (spec.get("os") or {}).get("name") != "windows":
        context = spec.get("securityContext") or {}
        if "fsGroup" not in context:
            # A volume with many files is not searched again by each attempt.
            spec["securityContext"] = {"fsGroupChangePolicy": "OnRootMismatch", **context, "fsGroup": fs_group}
    parsed = PodTemplate.parse({"metadata": metadata, "spec": spec})
    return definition.model_copy(update={"container": None, "pod_template": parsed, "workspaces": []})


def template_of(definition: Activity) -> KubeObject:
    """Return the pod template of an activity as modifiable JSON; for a `container` or `script`, it has only that container."""
    if definition.pod_template is not None:
        return definition.pod_template.dump()
    if definition.script is not None:
        large = definition.artifacts is not None and bool(definition.artifacts.large_results)
        return {"spec": {"containers": [script_container(definition.script, large_results=large)]}}
    assert definition.container is not None
    return {"spec": {"containers": [definition.container.dump()]}}


def _mount(mount: WorkspaceMount) -> KubeObject:
    fields: KubeObject = {"name": f"{WORKSPACE_VOLUME}{mount.name}", "mountPath": mount.target}
    if mount.sub_path:
        fields["subPath"] = mount.sub_path
    if mount.read_only:
        fields["readOnly"] = True
    return fields


def _keep_together(spec: KubeObject, one_node: Sequence[str]) -> None:
    """Make the scheduler place concurrent pods of a claim on the same node."""
    affinity = dict(spec.get("affinity") or {})
    pods = dict(affinity.get("podAffinity") or {})
    terms = [
        {"topologyKey": _HOSTNAME, "labelSelector": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}
        for key in one_node
    ]
    pods[_REQUIRED] = [*list_in(pods, _REQUIRED), *terms]
    spec["affinity"] = {**affinity, "podAffinity": pods}


def writers(events: Iterable[ev.AnyEvent], activities: Mapping[str, Activity]) -> dict[str, list[str]]:
    """The steps whose results a history has and that may have written to a workspace: their activity mounts it, not `readOnly`.

    Args:
        events: A history, or a part of it that contains the events that scheduled its activities.
        activities: The definitions of the activities, by `definition_name`.

    Returns:
        The paths of the steps, by name of the workspace.
    """
    types, found = dict[int, str](), dict[str, list[str]]()
    for event in events:
        match event:
            case ev.ActivityTaskScheduled():
                types[event.event_id] = definition_name(event)
            case ev.ActivityTaskCompleted():
                definition = activities.get(types.get(event.scheduled_event_id, ""))
                for mount in definition.workspaces if definition is not None else ():
                    if not mount.read_only:
                        found.setdefault(mount.name, []).append(event.activity_id)
            case _:
                pass
    return found


def needed_files(
    before: Sequence[ev.AnyEvent],
    later: Sequence[ev.AnyEvent],
    kept: Collection[int],
    activities: Mapping[str, Activity],
) -> dict[str, list[str]]:
    """The steps whose results a reset or a retry keeps, and whose files the steps that run again can read.

    Steps that the old run has not started are not known here: their attempts are checked when they need the claim.

    Args:
        before: The events of the old run that the new one takes over.
        later: The later events of the old run.
        kept: IDs of later completions whose results are kept.
        activities: The definitions of the activities, by `definition_name`.

    Returns:
        The paths of the steps, by name of the workspace.
    """
    taken = [*before, *(each for each in later if _is_taken(each, kept))]
    mounted = {
        mount.name
        for each in _repeated(taken, later)
        if (definition := activities.get(definition_name(each))) is not None
        for mount in definition.workspaces
    }
    return {name: paths for name, paths in writers(taken, activities).items() if name in mounted}


def _is_taken(event: ev.AnyEvent, kept: Collection[int]) -> bool:
    return isinstance(event, ev.ActivityTaskScheduled) or event.event_id in kept


def _repeated(taken: Iterable[ev.AnyEvent], later: Iterable[ev.AnyEvent]) -> Iterator[ev.ActivityTaskScheduled]:
    """The activities of steps that run again: they began after the point or were open there, and their results are not kept.

    Compensations and the like are left out: they may not run again.
    """
    ended = {
        each.scheduled_event_id
        for each in taken
        if isinstance(
            each,
            ev.ActivityTaskCompleted | ev.ActivityTaskFailed | ev.ActivityTaskTimedOut | ev.ActivityTaskCanceled,
        )
    }
    for event in (*taken, *later):
        if isinstance(event, ev.ActivityTaskScheduled) and event.event_id not in ended and ":" not in event.activity_id:
            yield event


_NAMED: Final = 5
"""Maximum number of steps that a message names."""


def lost_files(workspace: str, paths: Sequence[str]) -> str:
    """Say that files of steps are gone, and name the steps that must run again, as `from` of a retry names them.

    Args:
        workspace: Name of the workspace.
        paths: The steps that may have written the files.
    """
    steps = list(dict.fromkeys(path.partition("[")[0] for path in paths))
    named = ", ".join(f"`{step}`" for step in steps[:_NAMED]) + (", …" if len(steps) > _NAMED else "")
    noun = "step" if len(steps) == 1 else "steps"
    return (
        f"the PersistentVolumeClaim of workspace `{workspace}` is gone, and with it the files of {noun} {named}, which would not "
        f"run again"
    )
