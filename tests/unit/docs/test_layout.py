"""What docs/architecture.md says about names and sizes, for the whole operator, and of the tests."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).parents[3]
OPERATOR = CHECKOUT / "operator" / "perdure"

SHARED_NAMES = {
    # A step as it is written, and compiled.
    "Case",
    "Catch",
    "ContinueAsNew",
    "Fail",
    "Parallel",
    "Return",
    "Sleep",
    "Switch",
    "WaitForSignal",
    "WaitUntil",
    # A command and its event.
    "UpsertWorkflowSearchAttributes",
    # Of the API and of the engine.
    "RetryPolicy",
    # Too large for an activity, and for the operator.
    "PayloadTooLargeError",
}
"""The names in two rooms that docs/architecture.md explains."""


@cache
def classes() -> list[tuple[Path, ast.ClassDef]]:
    files = sorted(OPERATOR.rglob("*.py"))
    trees = [(file.relative_to(OPERATOR), ast.parse(file.read_text(encoding="utf-8"))) for file in files]
    return [(file, node) for file, tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def test_no_two_public_classes_have_one_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for file, node in classes():
        if not node.name.startswith("_"):
            found[node.name].append(str(file))
    assert {name: files for name, files in found.items() if len(files) > 1 and name not in SHARED_NAMES} == {}
    assert {name for name in SHARED_NAMES if len(found[name]) != 2} == set()


def test_no_class_has_more_than_250_lines() -> None:
    sizes = {f"{file}: {node.name}": (node.end_lineno or 0) - node.lineno + 1 for file, node in classes()}
    assert {name: size for name, size in sizes.items() if size > 250} == {}


def test_no_file_has_more_than_500_lines() -> None:
    files = [file for folder in ("operator", "tests", "hack") for file in (CHECKOUT / folder).rglob("*.py")]
    sizes = {str(file): len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    assert {name: size for name, size in sizes.items() if size > 500} == {}
