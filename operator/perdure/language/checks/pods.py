"""Checks an activity's pod without the API server: names reserved by Perdure, values that are not text."""

from collections.abc import Iterator
from typing import Any

from perdure.api import reserved
from perdure.api.container_needs import NEEDS, ContainerOrderError, needs_of
from perdure.api.kinds.workflow import Activity
from perdure.language.coercion import shown
from perdure.language.program import Finding


def of_activity(path: str, activity: Activity) -> Iterator[Finding]:
    """Check an activity's pod; `path` is the path of the activity."""
    has_sidecar, has_artifacts = activity.sidecar is not None, activity.artifacts is not None
    yield from _mounts(path, activity)
    yield from _patch(f"{path}.podSpecPatch", activity.pod_spec_patch or {})
    volumes = {reserved.VOLUME, reserved.ORDER, *((reserved.SIDECAR, reserved.ACCOUNT_VOLUME) if has_sidecar else ())}
    volumes |= {reserved.ARTIFACTS, reserved.OUTPUTS, reserved.LOG} if has_artifacts else set()
    if activity.pod_template is not None:
        path, spec = f"{path}.podTemplate.spec", activity.pod_template.spec.dump()
        yield from _order(path, spec)
        for i, volume in enumerate(_objects(spec, "volumes")):
            if volume.get("name") in volumes or str(volume.get("name") or "").startswith(reserved.WORKSPACE_VOLUME):
                yield _taken(f"{path}.volumes[{i}].name", f"a volume named `{volume['name']}`")
        containers = [
            (f"{path}.{key}[{i}]", container)
            for key in ("containers", "initContainers")
            for i, container in enumerate(_objects(spec, key))
        ]
    elif activity.container is not None:
        containers = [(f"{path}.container", activity.container.dump())]
    elif activity.script is not None:
        containers = [(f"{path}.script", activity.script.dump())]
    else:
        return
    for where, container in containers:
        yield from _not_text(where, container)
        names = {*((reserved.SIDECAR,) if has_sidecar else ())}
        names |= {reserved.ARTIFACTS, reserved.OUTPUTS} if has_artifacts else set()
        if container.get("name") in names:
            yield _taken(f"{where}.name", f"a container named `{container['name']}`")
    if containers:
        yield from _main(*containers[0], activity)


def _main(path: str, container: dict[str, Any], activity: Activity) -> Iterator[Finding]:
    """Check the activity's own container; `path` is the path of the container."""
    mounts = {reserved.MOUNT_PATH, reserved.ORDER_PATH}
    mounts |= {reserved.FILES_PATH} if activity.sidecar is not None else set()
    mounts |= {mount.target.rstrip("/") for mount in activity.workspaces}
    if activity.artifacts is not None:
        mounts |= {each.path.rstrip("/") for each in activity.artifacts.inputs}
        mounts |= {reserved.RESULT_PATH} if activity.artifacts.large_results else set()
        if activity.artifacts.archive_logs:
            mounts.add(reserved.LOG_PATH)
            if activity.script is None and not _list(container, "command"):
                yield Finding(f"{path}.command", "must be set to archive the log: use the entrypoint of the image")
    for i, mount in enumerate(_objects(container, "volumeMounts")):
        target = str(mount.get("mountPath") or "").rstrip("/")
        if target in mounts:
            yield _taken(f"{path}.volumeMounts[{i}].mountPath", f"a mount at `{target}`")


def _order(path: str, spec: dict[str, Any]) -> Iterator[Finding]:
    """Check the order of the containers in a pod template."""
    containers = [
        {"name": reserved.DEFAULT_CONTAINER if i == 0 else "", **each}
        for i, each in enumerate(_objects(spec, "containers"))
    ]
    try:
        needs_of(containers)
    except ContainerOrderError as error:
        yield Finding(f"{path}.{error.field}", error.message)
    for i, container in enumerate(_objects(spec, "initContainers")):
        if NEEDS in container:
            message = "must not be used: init containers run in the order of the list, before the containers"
            yield Finding(f"{path}.initContainers[{i}].{NEEDS}", message)


def _patch(path: str, patch: dict[str, Any]) -> Iterator[Finding]:
    """Check that a patch of the pod does not change Perdure's own volumes and containers."""
    own = {reserved.VOLUME, reserved.SIDECAR, reserved.ACCOUNT_VOLUME}
    for i, volume in enumerate(_objects(patch, "volumes")):
        if volume.get("name") in own or str(volume.get("name") or "").startswith(reserved.WORKSPACE_VOLUME):
            yield _taken(f"{path}.volumes[{i}].name", f"a volume named `{volume['name']}`")
    for key in ("containers", "initContainers"):
        for i, container in enumerate(_objects(patch, key)):
            if container.get("name") == reserved.SIDECAR:
                yield _taken(f"{path}.{key}[{i}].name", f"a container named `{reserved.SIDECAR}`")
            elif not isinstance(container.get("name"), str):
                yield Finding(f"{path}.{key}[{i}].name", "must be set: containers are merged by their names")


def _mounts(path: str, activity: Activity) -> Iterator[Finding]:
    """Check the workspaces and artifacts of an activity."""
    seen: set[str] = set()
    for i, mount in enumerate(activity.workspaces):
        where, target = f"{path}.workspaces[{i}]", mount.target.rstrip("/")
        if target in {reserved.MOUNT_PATH, reserved.FILES_PATH}:
            yield _taken(f"{where}.mountPath", f"a mount at `{target}`")
        elif target in seen:
            yield Finding(f"{where}.mountPath", f"another workspace or artifact is already mounted at `{target}`")
        seen.add(target)
        if mount.sub_path.startswith("/") or ".." in mount.sub_path.split("/"):
            yield Finding(f"{where}.subPath", "must be a relative path without `..`")
    for i, artifact in enumerate(activity.artifacts.inputs if activity.artifacts is not None else ()):
        where, target = f"{path}.artifacts.inputs[{i}]", artifact.path.rstrip("/")
        if target in {reserved.MOUNT_PATH, reserved.FILES_PATH}:
            yield _taken(f"{where}.path", f"a mount at `{target}`")
        elif target in seen:
            yield Finding(f"{where}.path", f"another workspace or artifact is already mounted at `{target}`")
        seen.add(target)


def _not_text(path: str, container: dict[str, Any]) -> Iterator[Finding]:
    """Find numbers, booleans, and the like where Kubernetes only accepts text: YAML reads `3` and `yes` as such."""
    values = [(f"{key}[{i}]", value) for key in ("command", "args") for i, value in enumerate(_list(container, key))]
    values += [(f"env[{i}].value", one["value"]) for i, one in enumerate(_objects(container, "env")) if "value" in one]
    for where, value in values:
        if value is not None and not isinstance(value, str):
            yield Finding(f"{path}.{where}", f"must be a string, not {shown(value)}; put it in quotes")


def _taken(path: str, what: str) -> Finding:
    return Finding(path, f"Perdure reserves {what} in the activity's pod; choose another one")


def _objects(parent: dict[str, Any], key: str) -> list[dict[str, Any]]:
    return [one if isinstance(one, dict) else {} for one in _list(parent, key)]


def _list(parent: dict[str, Any], key: str) -> list[Any]:
    given = parent.get(key)
    return given if isinstance(given, list) else []
