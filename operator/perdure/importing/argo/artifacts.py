"""Converts artifacts of Argo in templates, arguments, and blocks.

Artifacts of an object store go to the artifact store. An init container fetches input artifacts from Git.
"""

import posixpath
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from perdure.importing.argo.scope import artifact_field, artifact_name, is_tag
from perdure.importing.expressions import TAG, Resolve, UntranslatableError, expression, member, template
from perdure.importing.programs import FileCopy, not_expanded
from perdure.importing.reader import Fields, Object, as_text

_PACKED: Final = (".tar.gz", ".tgz", ".tar", ".tar.xz", ".tar.bz2")
_OTHER_PLACES: Final = (
    "download it in the container of the activity, or keep it in the artifact store; see docs/artifacts.md"
)
_COPIES: Final = "/argo-outputs"
"""The folder with the copies of output artifacts."""
_OF_IMAGES: Final = {
    f"/{name}" for name in ("bin", "etc", "go", "home", "lib", "opt", "root", "sbin", "usr", "var", "")
}
"""Folders whose files come from the image."""
_BUCKETS: Final = ("s3", "gcs", "oss")
"""Object stores with an S3-compatible API, which the artifact store can be."""
_OTHER_STORES: Final = ("git", "azure", "hdfs", "artifactory", "plugin")
_INPUT_ADVICE: Final = {
    "mode": "set the mode in the command; an input is read-only, and keeps the modes with which it was stored",
    "recurseMode": "set the modes in the command",
    "archive": "an artifact is unpacked as it was packed",
    "from": "pass the artifact in the arguments of the step",
    "fromExpression": "pass the artifact in the arguments of the step",
    "subPath": "pass the whole artifact, and read the part of it",
}
"""The alternative for a field of an input artifact."""
_OUTPUT_NOTES: Final = {
    "archive": "the artifact store packs each artifact in its own form, and unpacks it for those that read it",
    "artifactGC": "artifacts are deleted with their run; to keep them, set `artifacts.retention: Keep` in the activity",
}
_STORE: Final = "create the Secret `perdure-artifacts` for the bucket; see docs/artifacts.md"


def artifact_paths(template_: Object) -> dict[str, str]:
    """Return the paths of the artifacts of a template, by the tags that reference them."""
    found = {}
    for kind in ("inputs", "outputs"):
        for each in (template_.get(kind) or {}).get("artifacts") or []:
            found[f"{kind}.artifacts.{each.get('name')}.path"] = str(each.get("path"))
    return found


def passed_artifacts(template_: Object) -> dict[str, bool]:
    """Return the artifacts that callers of a template pass, and whether each is optional."""
    passed = [each for each in (template_.get("inputs") or {}).get("artifacts") or [] if not _has_source(each)]
    return {str(each.get("name")): bool(each.get("optional")) for each in passed}


def _has_source(artifact: Mapping[str, Any]) -> bool:
    return any(artifact.get(key) is not None for key in ("raw", "http", *_BUCKETS, *_OTHER_STORES))


def global_outputs(template_: Object) -> dict[str, str]:
    """The global names of the output artifacts of a template."""
    outputs = (template_.get("outputs") or {}).get("artifacts") or []
    return {str(each.get("name")): str(each["globalName"]) for each in outputs if each.get("globalName")}


def optional_outputs(template_: Object) -> frozenset[str]:
    """Return the optional output artifacts of a template."""
    outputs = (template_.get("outputs") or {}).get("artifacts") or []
    return frozenset(str(each.get("name")) for each in outputs if each.get("optional"))


def of_activity(inputs: list[Fields], outputs: list[Fields], resolve: Resolve, log: Object) -> Object:
    """Return the artifacts of an activity.

    Args:
        inputs: The input artifacts of a template.
        outputs: The output artifacts of the template.
        resolve: Translates references.
        log: The field that archives the log, if any.
    """
    made = {
        "inputs": list(_inputs(inputs, resolve)),
        "outputs": list(_outputs(outputs, resolve)),
        **log,
    }
    kept = {key: value for key, value in made.items() if value}
    return {"artifacts": kept} if kept else {}


def _inputs(artifacts: list[Fields], resolve: Resolve) -> Iterator[Object]:
    for each in artifacts:
        name = each.text("name") or ""
        artifact: Object = {"name": artifact_name(name), "path": each.text("path") or f"/tmp/{name}"}  # noqa: S108 (of a container)
        optional = each.take("optional", False)
        if each.take("mode") is not None:
            each.gap("mode", f"has no counterpart; {_INPUT_ADVICE['mode']}")
        if _has_source(each.data):
            source = argument(each, resolve)
            if source is None:
                continue
            artifact |= _source(source)
        else:
            artifact["from"] = "${" + member("input", artifact_field(name)) + "}"
            artifact |= {"optional": True} if optional else {}
        each.done(_INPUT_ADVICE)
        yield artifact


def _source(value: Object) -> Object:
    """Convert the source of an input artifact to the value of an argument."""
    packed = {"archive": value["archive"]} if "archive" in value else {}
    if "data" in value:
        return {"raw": {"data": value["data"]}}
    return {"http": {"url": value["url"]}, **packed} if "url" in value else {"key": value["key"], **packed}


def copied(artifacts: list[Fields]) -> tuple[FileCopy, ...]:
    """Take the paths of output artifacts whose folder cannot be a volume: the container copies them into one."""
    copies = []
    for each in artifacts:
        source = posixpath.normpath(as_text(each.data.get("path") or ""))
        if "{{" in source or posixpath.dirname(source) != "/" or (source not in _OF_IMAGES and "." not in source):
            continue
        target = f"{_COPIES}/{artifact_name(str(each.data.get('name')))}"
        copies.append(FileCopy(source, target, bool(each.data.get("optional"))))
        each.data["path"] = target
    return tuple(copies)


def _outputs(artifacts: list[Fields], resolve: Resolve) -> Iterator[Object]:
    for each in artifacts:
        name, path = each.text("name") or "", each.text("path") or ""
        each.report.note("outputs.artifacts", f"they go to the artifact store; {_STORE}")
        artifact: Object = {"name": artifact_name(name), "path": path}
        if each.take("optional", False):
            artifact["optional"] = True
        folder = posixpath.normpath(path)
        if "{{" in path:
            each.gap("path", "must be known before the run")
        elif posixpath.dirname(folder) == "/":
            each.note("path", "must be a folder; it becomes a volume, and is empty when the container starts")
        for kind in _BUCKETS:
            if kind in each:
                artifact |= _copy_key(each, kind, resolve)
        for field in ("archive", "artifactGC"):
            if each.take(field):
                each.note(field, _OUTPUT_NOTES[field])
        each.drop("mode", "globalName", "deleted", "recurseMode")
        each.done(dict.fromkeys(_OTHER_STORES, f"artifacts go to an S3-compatible bucket: {_STORE}"))
        yield artifact


def _copy_key(artifact: Fields, kind: str, resolve: Resolve) -> Object:
    """Return the key of a copy for an output artifact with a key of its own."""
    key = (artifact.take(kind) or {}).get("key")
    if not isinstance(key, str):
        return {}
    if key.endswith("/"):
        artifact.note(f"{kind}.key", "a folder becomes one object with a key of its run; pass it with `from`")
        return {}
    artifact.note(kind, f"a copy of the artifact has this key in the artifact store; {_STORE}")
    try:
        return {"key": template(key, resolve, is_tag) if TAG.search(key) else key.replace("${", "$${")}
    except UntranslatableError as error:
        artifact.gap(f"{kind}.key", str(error))
        return {}


def archives_log(template_: Fields, *, default: bool) -> bool:
    """Take the `archiveLocation` of a template, and return whether the log of its container is archived.

    Args:
        template_: The template.
        default: Whether the workflow archives the logs of all containers.
    """
    location = template_.part("archiveLocation")
    setting = location.take("archiveLogs")
    if location.data:
        template_.note("archiveLocation", f"artifacts and logs go to the artifact store; {_STORE}")
    archives = default if setting is None else setting is True
    if archives and "containerSet" in template_:
        template_.note("containerSet", "only the log of `main`, or else of the last container, is archived")
    return archives


def of_log(template_: Fields, work: Object, path: str) -> Object:
    """Return the field of the artifacts of an activity that archives the log of its container.

    Args:
        template_: The template.
        work: The container, pod template, or script of the activity.
        path: The path of the field that says so.
    """
    container = work["podTemplate"]["spec"]["containers"][0] if "podTemplate" in work else work.get("container")
    if container is not None and not container.get("command"):
        template_.gap("container.command", "must be set: to archive the log, a shell starts the command")
        return {}
    template_.report.note(path, f"logs go to the artifact store, and are deleted with their run; {_STORE}")
    return {"archiveLogs": True}


def argument(artifact: Fields, resolve: Resolve) -> Any:
    """Return the value of a passed artifact: a reference, or an object with its source; None after a gap."""
    artifact.drop("name", "optional", "path", "mode", "artifactGC")
    try:
        reference = artifact.text("from")
        if reference is not None:
            return template(reference, resolve, is_tag)
        computed = artifact.text("fromExpression")
        if computed is not None:
            return "${" + expression(computed, resolve) + "}"
        return _source_value(artifact, resolve)
    except UntranslatableError as error:
        artifact.gap("from", str(error))
        return None


def _source_value(artifact: Fields, resolve: Resolve) -> Any:
    plain = (artifact.take("archive") or {}).get("none") is not None
    buckets = ((kind, "key", "key") for kind in _BUCKETS)
    for kind, field, key in (("raw", "data", "data"), ("http", "url", "url"), *buckets):
        if kind not in artifact:
            continue
        source = artifact.part(kind)
        text = source.data.pop(field, None)
        if kind in _BUCKETS:
            artifact.note(kind, f"the object must be in the artifact store; {_STORE}")
            source.data.clear()
            if isinstance(text, str) and text.endswith("/"):
                artifact.gap(f"{kind}.key", "is a folder; pack it into one object, such as a `.tar.gz`")
                return None
        source.done(
            {"headers": "send them in an `http` activity", "auth": "download it in the container of the activity"}
        )
        if not isinstance(text, str):
            artifact.gap(f"{kind}.{field}", "must be set")
            return None
        made = {key: template(text, resolve, is_tag) if TAG.search(text) else text.replace("${", "$${")}
        return made if kind == "raw" or plain or not text.endswith(_PACKED) else {**made, "archive": "Tar"}
    other = next((each for each in _OTHER_STORES if each in artifact), None)
    if other is not None:
        artifact.drop(other)
        artifact.gap(other, f"is not imported; {_OTHER_PLACES}")
    else:
        artifact.gap("", "the artifact has no source")
    return None


def without_source(inputs: Fields) -> None:
    """Report the input artifacts of a steps or dag template that have a source of their own."""
    for each in inputs.parts("artifacts"):
        if _has_source(each.data):
            each.gap("", "move the source to the templates or the arguments that use the artifact")
        for name in ("from", "fromExpression", "subPath"):
            if each.take(name):
                each.gap(name, _INPUT_ADVICE[name])


def of_block(outputs: Fields, resolve: Resolve) -> Object:
    """Return the output artifacts of a steps or dag template, as fields of the output of its block."""
    made = {}
    for each in outputs.parts("artifacts"):
        name = each.data.get("name")
        each.drop("globalName")
        if each.take("artifactGC"):
            each.note("artifactGC", _OUTPUT_NOTES["artifactGC"])
        value = argument(each, resolve)
        each.done({})
        if value is not None:
            made[artifact_field(str(name))] = value
    return made


_IMAGE: Final = "alpine/git:v2.45.2"
_ALL: Final = "+refs/heads/*:refs/remotes/origin/*"
_PROGRAM: Final = """set -e
folder=$1 repository=$2 revision=$3 depth=$4 submodules=$5
shift 5
export HOME=$(mktemp -d)
git config --global --add safe.directory '*'
if [ -n "$GIT_PASSWORD" ]; then
  git config --global credential.helper '!f() { echo "username=$GIT_USERNAME"; echo "password=$GIT_PASSWORD"; }; f'
fi
mkdir -p "$folder"
cd "$folder"
git init -q
git remote remove origin 2>/dev/null || true
git remote add origin "$repository"
if [ -n "$revision" ]; then
  git fetch -q --tags $depth origin "$@"
  found=$(git rev-parse -q --verify "origin/$revision^{commit}" || git rev-parse -q --verify "$revision^{commit}")
else
  git fetch -q $depth origin HEAD
  found=FETCH_HEAD
fi
git checkout -q --force --detach "$found"
if [ "$submodules" = true ]; then git submodule -q update --init --recursive --force; fi
"""
"""Fetches a revision into a folder, which may contain it already."""


def is_from_git(artifact: Fields) -> bool:
    """Whether an input artifact comes from Git."""
    return isinstance(artifact.data.get("git"), dict)


def clone(
    artifact: Fields, mounts: list[Any], resolve: Callable[[tuple[str, ...]], str]
) -> tuple[Object, Object | None]:
    """Return the init container that fetches an artifact, and the volume for it; None if a mount contains its path.

    Args:
        artifact: The input artifact.
        mounts: The volume mounts of the main container; gets that of a new volume.
        resolve: Translates references.
    """
    name, path = artifact_name(artifact.text("name") or ""), artifact.text("path") or "/src"
    source = artifact.part("git")
    artifact.drop("optional")
    artifact.done(_INPUT_ADVICE)
    volume = None
    mount = _containing(path, mounts)
    if mount is None:
        volume = {"name": f"git-{name}", "emptyDir": {}}
        mount = {"name": volume["name"], "mountPath": path}
        mounts.append(mount)
    secrets = {"GIT_USERNAME": source.take("usernameSecret"), "GIT_PASSWORD": source.take("passwordSecret")}
    environment = [{"name": key, "valueFrom": {"secretKeyRef": each}} for key, each in secrets.items() if each]
    container: Object = {
        "name": f"git-{name}",
        "image": _IMAGE,
        "command": ["sh", "-c"],
        "args": [not_expanded(_PROGRAM).replace("${", "$${"), "perdure", path, *_arguments(source, resolve)],
        **({"env": environment} if environment else {}),
        "volumeMounts": [{key: value for key, value in mount.items() if key != "readOnly"}],
    }
    source.drop("insecureIgnoreHostKey")  # only for SSH, which is reported
    source.done(
        {
            "sshPrivateKeySecret": "use an `https` URL with `usernameSecret` and `passwordSecret`",
            "insecureSkipTLS": "the certificate of the server must be valid",
        }
    )
    return container, volume


def _containing(path: str, mounts: list[Any]) -> Object | None:
    """Return the mount that contains a path."""
    found = [each for each in mounts if f"{path}/".startswith(f"{str(each.get('mountPath')).rstrip('/')}/")]
    return max(found, key=lambda each: len(str(each["mountPath"])), default=None)


def _arguments(source: Fields, resolve: Callable[[tuple[str, ...]], str]) -> list[str]:
    """Return the repository, the revision, and what to fetch, as arguments of the program."""
    depth, branch = source.text("depth"), source.text("branch")
    single = source.take("singleBranch", False) and branch
    references = [
        *source.take("fetch", []),
        *([f"+refs/heads/{branch}:refs/remotes/origin/{branch}"] if single else [_ALL]),
    ]
    submodules = not source.take("disableSubmodules", False)
    required = [source.text("repo") or "", source.text("revision") or branch or ""]
    texts = [*required, f"--depth={depth}" if depth else "", "true" if submodules else "false", *map(str, references)]
    try:
        return [template(each, resolve, is_tag) for each in texts]
    except UntranslatableError as error:
        source.gap("", str(error))
        return []
