from pathlib import Path

import pytest

from cluster.leftovers import clear_work
from cluster.store import ensure_entry, fingerprint, locked, locked_if_free, write_atomically


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


def test_a_key_depends_on_content_names_and_arguments_but_not_on_the_folder(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    key = fingerprint(files=[write(here, "go.mod", "a"), write(here, "go.sum", "b")], words=["-trimpath"])
    want_same = fingerprint(files=[write(there, "go.sum", "b"), write(there, "go.mod", "a")], words=["-trimpath"])
    assert key == want_same
    assert key != fingerprint(files=[write(there, "go.mod", "A"), there / "go.sum"], words=["-trimpath"])
    assert key != fingerprint(files=[here / "go.mod", here / "go.sum"], words=["-race"])
    assert key != fingerprint(files=[here / "go.mod"], words=["-trimpath"])


def test_arguments_that_join_to_the_same_text_have_different_keys() -> None:
    assert fingerprint(words=["ab", "c"]) != fingerprint(words=["a", "bc"])
    assert fingerprint(words=["ab"]) != fingerprint(words=["ab", ""])


def test_a_key_changes_when_a_script_becomes_executable(tmp_path: Path) -> None:
    script = write(tmp_path, "podnet.sh", "#!/bin/sh")
    script.chmod(0o644)
    before = fingerprint(files=[script])
    script.chmod(0o755)
    assert fingerprint(files=[script]) != before


def test_an_entry_is_built_once(tmp_path: Path) -> None:
    made = []

    def make(draft: Path) -> None:
        made.append(draft)
        draft.write_text("whole")

    for _ in range(2):
        entry = ensure_entry(tmp_path / "built" / "kind-1", tmp_path / "work", make)
        assert entry.read_text() == "whole"
    assert len(made) == 1
    assert list((tmp_path / "work").iterdir()) == []


def test_a_failed_build_leaves_no_entry(tmp_path: Path) -> None:
    def make(draft: Path) -> None:
        draft.write_text("half")
        raise OSError

    with pytest.raises(OSError, match=r"^$"):
        ensure_entry(tmp_path / "built" / "kind-1", tmp_path / "work", make)
    assert not (tmp_path / "built" / "kind-1").exists()
    assert list((tmp_path / "work").iterdir()) == []


def test_leftovers_of_a_killed_build_are_removed_and_reported(tmp_path: Path) -> None:
    (tmp_path / "kubernetes-abc" / "half").mkdir(parents=True)
    assert clear_work(tmp_path) == ["kubernetes-abc"]
    assert list(tmp_path.iterdir()) == []
    assert clear_work(tmp_path / "absent") == []


def test_a_shared_lock_is_free_only_after_its_last_user(tmp_path: Path) -> None:
    lock = tmp_path / "locks" / "daemon-in-use"
    with locked(lock, shared=True), locked(lock, shared=True), locked_if_free(lock) as free:
        assert not free
    with locked_if_free(lock) as free:
        assert free


def test_a_file_is_replaced_without_leaving_a_temporary_file(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "state.json"
    write_atomically(file, "1")
    write_atomically(file, "2")
    assert file.read_text() == "2"
    assert list(file.parent.iterdir()) == [file]
