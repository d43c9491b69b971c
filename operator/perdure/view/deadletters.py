"""Formats DeadLetters as a table, and a single DeadLetter in full."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.text import Text

from perdure.engine.payloads import readable
from perdure.view import tables, text
from perdure.view.page import Page
from perdure.view.runs import failure

_WORDS = {"True": "Succeeded", "False": "Failed", "Unknown": "Running", "": "No"}


def redriven(letter: Mapping[str, Any]) -> str:
    """Return the status of the condition `Redriven`: True, False, or Unknown; empty without a re-drive."""
    conditions = (letter.get("status") or {}).get("conditions") or ()
    return next((str(c["status"]) for c in conditions if c["type"] == "Redriven"), "")


def table(letters: Sequence[Mapping[str, Any]], page: Page, *, namespaces: bool = False) -> list[Text]:
    """Show DeadLetters.

    Args:
        letters: The objects.
        page: The page for the output.
        namespaces: Whether their namespaces are shown.

    Returns:
        Lines; the first one is the heading.
    """
    heading = ("NAME", "RUN", "STEP", "ACTIVITY", "ATTEMPTS", "REDRIVEN", "FAILURE", "AGE")
    rows = [_cells(letter["metadata"], letter["spec"], redriven(letter), page) for letter in letters]
    return tables.table(heading, rows, page, namespaces=map(tables.namespace_of, letters) if namespaces else None)


def _cells(meta: Mapping[str, Any], spec: Mapping[str, Any], status: str, page: Page) -> list[str]:
    return [
        meta["name"],
        spec["workflowRun"]["name"],
        spec["step"],
        spec["activity"],
        str(spec["attempts"]),
        _WORDS[status],
        _type(spec["failure"]),
        text.age(page.now - datetime.fromisoformat(spec["failedTime"])),
    ]


def _type(node: Mapping[str, Any]) -> str:
    """Return the title of the innermost failure of the last attempt."""
    while isinstance(node.get("cause"), dict):
        node = node["cause"]
    return failure.title(node)


def describe(letter: Mapping[str, Any], page: Page) -> Iterator[Text]:
    """Show one DeadLetter.

    Args:
        letter: The object.
        page: The page for the output.

    Yields:
        Lines.
    """
    meta, spec, status = letter["metadata"], letter["spec"], letter.get("status") or {}
    state = _WORDS[redriven(letter)]
    message = next((c.get("message", "") for c in status.get("conditions") or () if c["type"] == "Redriven"), "")
    facts = (
        ("Name", meta["name"]),
        ("Namespace", meta["namespace"]),
        ("Run", f"{spec['workflowRun']['name']} ({spec['workflowRun']['runId']})"),
        ("Step", spec["step"]),
        ("Activity", spec["activity"]),
        ("Attempts", f"{spec['attempts']}" + (f" ({spec['retryState']})" if spec.get("retryState") else "")),
        ("Failed", spec["failedTime"]),
        ("Input", json.dumps(readable(spec.get("input")), ensure_ascii=False)),
        ("Re-driven", text.join((state, message), ": ")),
        ("Output", json.dumps(readable(status["output"]), ensure_ascii=False) if "output" in status else ""),
    )
    for label, value in facts:
        if value:
            yield Text(page.shorten(f"{label + ':':<14}{text.one_line(value)}", page.width))
    yield Text("")
    yield Text("Failure")
    yield from failure.chain(spec["failure"], page)
    if status.get("failure"):
        yield Text("")
        yield Text("Failure of the last re-drive")
        yield from failure.chain(status["failure"], page)
    if state in {"No", "Failed"}:
        yield Text("")
        yield Text("  run it again with the same input:", style="dim")
        yield Text(f"    {page.perdure(meta['namespace'], 'deadletters redrive', meta['name'])}")
