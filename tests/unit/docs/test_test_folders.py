"""Tests import helpers, not each other: what several of them share is no file of tests (CONTRIBUTING.md)."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]


def of_tests(module: str) -> bool:
    """Whether a module is a file of tests or a `conftest.py` of this repository."""
    file = TESTS.joinpath(*module.split(".")).with_suffix(".py")
    return file.exists() and (file.name.startswith("test_") or file.name == "conftest.py")


def imported(file: Path) -> Iterator[str]:
    """The modules that a file imports, and what it imports from them."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def test_no_test_imports_from_a_file_of_tests() -> None:
    assert of_tests("unit.docs.test_test_folders")
    assert [(str(file), each) for file in TESTS.rglob("*.py") for each in imported(file) if of_tests(each)] == []
