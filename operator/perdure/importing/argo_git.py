"""Converts input artifacts of Argo from Git: an init container fetches them."""

from collections.abc import Callable
from typing import Any, Final

from perdure.importing.argo_pods import is_tag
from perdure.importing.argo_scope import artifact_name
from perdure.importing.expressions import UntranslatableError, template
from perdure.importing.field_reader import Fields, Object
from perdure.importing.programs import not_expanded

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
    artifact.drop("optional", "mode", "recurseMode", "archive")
    artifact.done({})
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
    source.drop("insecureIgnoreHostKey", "insecureSkipTLS")
    source.done({"sshPrivateKeySecret": "use an `https` URL with `usernameSecret` and `passwordSecret`"})
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
    given = [source.text("repo") or "", source.text("revision") or branch or ""]
    texts = [*given, f"--depth={depth}" if depth else "", "true" if submodules else "false", *map(str, references)]
    try:
        return [template(each, resolve, is_tag) for each in texts]
    except UntranslatableError as error:
        source.gap("", str(error))
        return []
