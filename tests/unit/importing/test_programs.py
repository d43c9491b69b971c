"""The shell that writes the result of a container, run by a real one."""

import json
import subprocess
from pathlib import Path

import pytest

from perdure.importing.programs import MISSING_CODE, FileCopy, Output, Returns, not_expanded, option_of, returning
from perdure.importing.reader import as_text
from perdure.runtime.pods.payloads import decode


def run(folder: Path, program: str, outputs: list[Output], *, prints: bool) -> tuple[int, str, str]:
    """The exit code, what was printed, and the termination message."""
    return run_all(folder, program, Returns(tuple(outputs), prints))


def run_all(folder: Path, program: str, returns: Returns) -> tuple[int, str, str]:
    made = returning(["sh", "-c", program], returns)
    line = [
        each.replace("$$", "$").replace("/dev/termination-log", "message") for each in made["command"] + made["args"]
    ]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)
    message = folder / "message"
    return done.returncode, done.stdout, message.read_text() if message.exists() else ""


def test_the_printed_text_is_the_result(tmp_path: Path) -> None:
    assert run(tmp_path, "echo heads", [], prints=True) == (0, "heads\n", "heads")


def test_a_failure_keeps_its_exit_code_and_output(tmp_path: Path) -> None:
    assert run(tmp_path, "echo so far; exit 3", [], prints=True) == (3, "so far\n", "")


def test_the_content_of_a_single_file_is_the_result(tmp_path: Path) -> None:
    assert run(tmp_path, "echo 5 > n", [Output("n", "n")], prints=False) == (0, "", "5")


def test_the_word_null_is_a_text(tmp_path: Path) -> None:
    assert run(tmp_path, "echo null", [], prints=True)[2] == '"null"'
    assert run(tmp_path, "echo null > n", [Output("n", "n", is_json=True)], prints=False)[2] == "null"


TEXTS = ['"7"', '"a b"', '""', '"', '"a\\"b"', '"a\\\\"', '"ü"', '"a\tb"', '"a"\n"b"', "x", "7", "true", "'a'"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("outputs", "prints"), [([Output("n", "n")], False), ([], True)])
def test_the_same_text_arrives(tmp_path: Path, text: str, outputs: list[Output], prints: bool) -> None:
    """Also one in quotes, such as `jq` prints it, which is JSON itself (argo-workflows#3990)."""
    (tmp_path / "text").write_text(text)
    message = run(tmp_path, "cat text; cp text n", outputs, prints=prints)[2]
    assert as_text(decode(message)[0]) == text


@pytest.mark.parametrize(("outputs", "prints"), [([Output("n", "n")], False), ([], True)])
def test_an_empty_result_is_an_empty_text(tmp_path: Path, outputs: list[Output], prints: bool) -> None:
    _, _, message = run(tmp_path, ": > n", outputs, prints=prints)
    assert json.loads(message) == ""


def test_a_default_replaces_a_missing_file(tmp_path: Path) -> None:
    assert run(tmp_path, "true", [Output("n", "n", "it's 5")], prints=False) == (0, "", "it's 5")


def test_a_missing_file_fails_the_activity(tmp_path: Path) -> None:
    code, _, message = run(tmp_path, "true", [Output("n", "n")], prints=False)
    assert code == MISSING_CODE
    assert message == ""


@pytest.mark.parametrize(
    "text", ["plain", 'a "quote"', "back\\slash", "two\nlines", "a\ttab", "", "umlaut ü", "$(id) `id`"]
)
def test_several_values_become_an_object(tmp_path: Path, text: str) -> None:
    (tmp_path / "source").write_text(text)
    outputs = [Output("text", "a file"), Output("list", "list", is_json=True)]
    program = "cp source 'a file'; echo '[1, 2]' > list; echo done"
    code, _, message = run(tmp_path, program, outputs, prints=True)
    assert code == 0
    assert json.loads(message) == {"text": text, "list": [1, 2], "result": "done"}


def test_files_are_copied_after_the_command(tmp_path: Path) -> None:
    copies = (FileCopy("a file", "out/a"), FileCopy("folder", "out/b"), FileCopy("missing", "out/c", optional=True))
    program = "mkdir out folder; echo 5 > 'a file'; echo 6 > folder/x"
    assert run_all(tmp_path, program, Returns(copies=copies)) == (0, "", "")
    assert (tmp_path / "out/a").read_text() == "5\n"
    assert (tmp_path / "out/b/x").read_text() == "6\n"
    assert not (tmp_path / "out/c").exists()


def test_a_missing_file_to_copy_fails_the_activity(tmp_path: Path) -> None:
    code, _, _ = run_all(tmp_path, "true", Returns(copies=(FileCopy("missing", "copy"),)))
    assert code != 0


def test_variables_are_not_expanded_by_kubernetes() -> None:
    assert not_expanded("$(date) $$ $HOME ${X}") == "$$(date) $$$ $HOME ${X}"


@pytest.mark.parametrize(
    ("interpreter", "option"), [("bash", "-c"), ("/usr/bin/python3.12", "-c"), ("node", "-e"), ("pwsh", None)]
)
def test_the_program_is_passed_to_the_interpreter(interpreter: str, option: str | None) -> None:
    assert option_of(interpreter) == option
