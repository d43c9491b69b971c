"""The rules of docs/architecture.md about names."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

OPERATOR = Path(__file__).parents[3] / "operator" / "perdure"

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


SHARED_FILES = {
    # Modules that every package may have under the same name: errors, program, entry point, output.
    "app.py": None,
    "errors.py": None,
    "main.py": None,
    "report.py": None,
    # The two pure state machines have the same parts.
    "effects.py": {"engine", "schedule"},
    "step.py": {"engine", "schedule"},
    "retry.py": {"engine", "cli/verbs"},  # a verb is called so, too
    # A subject: its model, its builder or reader, its controller, its RPCs, and its description for users.
    "artifacts.py": {"runtime", "language/checks", "cli/verbs"},
    "attempts.py": {"runtime", "engine/activities"},
    "commits.py": {"api", "runtime"},
    "deadletters.py": {"runtime", "cli/verbs", "view"},
    "expressions.py": {"language", "importing", "runner"},
    "history.py": {"engine", "cli/verbs"},
    "logs.py": {"console", "cli/verbs", "view"},
    "nexus.py": {"engine", "frontend", "frontend/http", "frontend/service"},
    "connection.py": {"cli", "kube"},
    "guard.py": {"console", "frontend"},
    "operations.py": {"client", "controller/operations", "cli/verbs", "view"},
    "pending.py": {"engine/state", "view"},
    "pods.py": {"runtime", "language/checks"},
    "resets.py": {"controller/runs", "frontend/service"},
    "retrypolicy.py": {"api", "cli/verbs"},
    "runs.py": {"client", "view"},
    "schedule.py": {"api", "cli/verbs"},
    "schedules.py": {"controller/informers", "view"},
    "search_attributes.py": {"frontend", "cli/verbs", "view"},
    "searching.py": {"api", "runtime"},
    "standalone.py": {"engine", "frontend", "frontend/service"},
    "starting.py": {"frontend/service", "cli"},
    "steps.py": {"api", "language/execution"},
    "tree.py": {"simulation", "view"},
    "webhooks.py": {"controller/webhooks", "frontend/http", "cli/verbs", "view"},
    "work.py": {"api", "language/checks"},
    "workers.py": {"controller", "frontend/service"},
}
"""File names in several rooms that mean one thing, with their rooms (None: any), except for the pairs below."""
PAIRS = [{"cli/verbs", "view"}, {"cli", "cli/verbs"}, {"frontend", "frontend/service"}]
"""A verb and its output, a verb and what it shares with others, a subject and its RPCs."""


@cache
def classes() -> list[tuple[Path, ast.ClassDef]]:
    files = sorted(OPERATOR.rglob("*.py"))
    trees = [(file.relative_to(OPERATOR), ast.parse(file.read_text(encoding="utf-8"))) for file in files]
    return [(file, node) for file, tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def test_public_class_names_are_unique() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for file, node in classes():
        if not node.name.startswith("_"):
            found[node.name].append(str(file))
    assert {name: files for name, files in found.items() if len(files) > 1 and name not in SHARED_NAMES} == {}
    assert {name for name in SHARED_NAMES if len(found[name]) != 2} == set()


def test_module_names_are_unique_except_listed_ones() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for file in OPERATOR.rglob("*.py"):
        if not file.name.startswith("__"):
            found[file.name].add(file.parent.relative_to(OPERATOR).as_posix())
    several = {name: rooms for name, rooms in found.items() if len(rooms) > 1 and rooms not in PAIRS}
    assert several == {name: rooms or several.get(name) for name, rooms in SHARED_FILES.items()}
