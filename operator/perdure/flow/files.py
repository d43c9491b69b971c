"""Where the files of activities are: in a pod, in the artifacts of its activity; in a local run, in a temporary folder.

A pod finds the files of its arguments in one input artifact, a folder with the files `0`, `1`, and so on. What it returns
becomes its output artifacts `file-1`, `file-2`, and so on; its result has the names of these, which the operator replaces by
references.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import weakref
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perdure.api.kinds.artifact import DEFAULT_STORE, MAX_OUTPUTS
from perdure.api.names import ARTIFACT_FIELD, FILES_FIELD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from perdure.api.files import StoredValue

INPUTS: Final = Path("/perdure-flow/in")
OUTPUTS: Final = Path("/perdure-flow/out")
"""Where the pods of activities have their artifacts."""
MAX_FILES: Final = MAX_OUTPUTS
"""Maximum number of files and folders that an activity returns."""


def artifacts_of(*, reads: bool, returns: bool) -> dict[str, Any]:
    """Return the artifacts of an activity.

    Args:
        reads: Whether its arguments can have files.
        returns: Whether its result can.
    """
    found: dict[str, Any] = {}
    if reads:
        source = f"${{input[?'{FILES_FIELD}'].orValue(null)}}"
        found["inputs"] = [{"name": "files", "path": str(INPUTS), "from": source, "optional": True}]
    if returns:
        found["outputs"] = [
            {"name": name, "path": str(OUTPUTS / name), "optional": True}
            for name in (f"file-{number}" for number in range(1, MAX_FILES + 1))
        ]
    return found


def with_files(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return arguments as JSON, and the list of the references in them, from which the pod's input artifact is made."""
    found = {each["key"]: each for each in _references(arguments)}
    return {**arguments, FILES_FIELD: list(found.values())} if found else arguments


def _references(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if isinstance(value.get("key"), str) and isinstance(value.get("store"), str) and "archive" in value:
            yield value
        else:
            for each in value.values():
                yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


class _Outbox:
    """What an activity returns: each file gets a name of its own in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._created = folder / "new"
        self._names: dict[Path, str] = {}

    def create_folder(self) -> Path:
        """Return a new folder beside what is stored, so that a file moves from one to the other."""
        self._created.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=self._created))

    def take(self, value: StoredValue) -> tuple[str, Path]:
        """Move or copy a file or a folder, and return its name and its path.

        Raises:
            ValueError: It does not exist, it is of the other kind, or there are too many.
        """
        path = value.path.absolute()
        if path not in self._names:
            self._check(value, path)
            name = f"file-{len(self._names) + 1}"
            target = self._folder / name
            if path.parent.parent == self._created:  # `create` has made it; what is in such a folder stays there
                path.replace(target)
            elif path.is_dir():
                shutil.copytree(path, target, symlinks=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
            self._names[path] = name
        return self._names[path], self._folder / self._names[path]

    def _check(self, value: StoredValue, path: Path) -> None:
        kind = type(value).__name__
        if not path.exists():
            raise ValueError(f"{kind}: {path} does not exist")
        if path.is_dir() != (value.archive == "Tar"):
            other = "a folder: return a pf.Folder" if path.is_dir() else "a file: return a pf.File"
            raise ValueError(f"{kind}: {path} is {other}")
        if len(self._names) == MAX_FILES:
            raise ValueError(f"an activity returns at most {MAX_FILES} files: write more to one pf.Folder")


class PodFiles:
    """The files of an activity in its pod."""

    def __init__(self, references: Sequence[Mapping[str, Any]], inputs: Path = INPUTS, outputs: Path = OUTPUTS) -> None:
        """`references`: what its input artifact has, in order."""
        self._paths = {each["key"]: inputs / str(number) for number, each in enumerate(references)}
        self._outbox = _Outbox(outputs)

    def create_folder(self) -> Path:
        """Return a new folder, in the volume of the output artifacts."""
        return self._outbox.create_folder()

    def put(self, value: StoredValue) -> dict[str, Any]:
        """Store a file when the container has ended."""
        name, _ = self._outbox.take(value)
        return {ARTIFACT_FIELD: name, "name": value.name}

    def get(self, reference: Mapping[str, Any]) -> Path:
        """Return the path of a file of the arguments."""
        if reference["key"] not in self._paths:
            raise ValueError(f"the file {reference['key']} is not here: the caller must list it in `{FILES_FIELD}`")
        return self._paths[reference["key"]]


class LocalStore:
    """The artifact store and the volumes of a local run: a temporary folder, which lasts as long as this or a file of it."""

    def __init__(self) -> None:
        """Create it without files."""
        self._paths: dict[str, Path] = {}
        self._attempts = 0

    @cached_property
    def _folder(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="perdure-flow-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    def attempt(self) -> LocalFiles:
        """Return the files of an attempt."""
        self._attempts += 1
        return LocalFiles(self, f"attempt-{self._attempts}")

    def workspace(self, run: str, name: str) -> Path:
        """Return the folder that is a workspace of a run."""
        folder = self._folder / "workspaces" / (run or "first") / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def folder_of(self, attempt: str) -> Path:
        """Return the folder of an attempt."""
        return self._folder / attempt

    def add(self, key: str, path: Path) -> None:
        """Keep a file, which nobody may change."""
        files = (
            [path] if path.is_file() else [Path(folder) / name for folder, _, names in os.walk(path) for name in names]
        )
        for each in files:
            if not each.is_symlink():  # what it points to is not in the store
                each.chmod(0o444)
        self._paths[key] = path

    def path_of(self, key: str) -> Path:
        """Return the path of a file.

        Raises:
            ValueError: No activity of this run has made it.
        """
        if key not in self._paths:
            raise ValueError(f"no activity of this local run has stored {key}: replace the function that reads it")
        return self._paths[key]


class LocalFiles:
    """The files of an attempt in a local run."""

    def __init__(self, store: LocalStore, name: str) -> None:
        """Made by `LocalStore.attempt`."""
        self._store = store
        self._name = name

    @cached_property
    def _outbox(self) -> _Outbox:
        return _Outbox(self._store.folder_of(self._name))

    def create_folder(self) -> Path:
        """Return a new folder."""
        return self._outbox.create_folder()

    def put(self, value: StoredValue) -> dict[str, Any]:
        """Store a file."""
        name, path = self._outbox.take(value)
        key = f"local/{self._name}/{name}"
        self._store.add(key, path)
        size, sha256 = _measured(path)
        facts = {"size": size, "sha256": sha256, "archive": value.archive}
        return {"store": DEFAULT_STORE, "key": key, **facts, "name": value.name}

    def get(self, reference: Mapping[str, Any]) -> Path:
        """Return the path of a file that an activity has stored."""
        return self._store.path_of(reference["key"])


def _measured(path: Path) -> tuple[int, str]:
    """Return the size and the SHA-256 of what a store would have."""
    with tempfile.TemporaryFile() if path.is_dir() else path.open("rb") as stored:
        if path.is_dir():
            with tarfile.open(fileobj=stored, mode="w:gz") as archive:
                archive.add(path, arcname=".")
            stored.seek(0)
        return os.fstat(stored.fileno()).st_size, hashlib.file_digest(stored, "sha256").hexdigest()
