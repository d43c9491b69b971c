"""The form that sends a signal to a run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from perdure.api.lenient import mapping, mappings, text

if TYPE_CHECKING:
    from perdure.api.lenient import Json
    from perdure.console.submissions import Submission

SIGNAL_FIELDS: Final = ("signal", "input")
"""The names of the fields."""


def awaited_signals(run: Json) -> list[str]:
    """Return the names of the signals that a run waits for."""
    awaited = mappings(mapping(run.get("status")).get("awaitedSignals"))
    return list(dict.fromkeys(text(each.get("name")) for each in awaited))


def read_signal(given: Submission) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the form.

    Returns:
        The request of the Operation, and what is wrong by the names of the fields; empty if the request is valid.
    """
    name, value, problems = given.text("signal").strip(), None, {}
    if not name:
        problems["signal"] = "Enter the name of the signal."
    try:
        value = json.loads(given.text("input").strip() or "null")
    except (ValueError, RecursionError) as error:
        problems["input"] = f'Enter JSON: {error}. Write a text with its quotes: "yes".'
    return {"name": name, "input": value}, problems
