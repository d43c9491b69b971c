"""Definitions for tests of static checks, and their findings."""

from typing import Any

import yaml

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.language.checks import CheckedDefinition, check

SCHEMA = """
input:
  schema:
    type: object
    required: [nights, guest, rooms, level, price, either]
    properties:
      nights: {type: integer}
      guest: {type: string}
      note: {type: string}
      price: {type: number}
      either: {type: [string, integer]}
      level: {enum: [1, 2]}
      address: {$ref: "#/$defs/address"}
      rooms: {type: array, items: {type: object, required: [n], properties: {n: {type: integer}}}}
    $defs: {address: {type: object, required: [street], properties: {street: {type: string}}}}
"""
ACTIVITIES = """
activities:
- {name: work, startToCloseTimeout: 1m, container: {image: i}}
"""
STEPS = {"steps": [{"name": "do", "activity": {"name": "work"}}]}
IDLE = {"name": "idle", "steps": [{"name": "nap", "sleep": {"duration": "1s"}}]}


def checked(text: str = "", **spec: Any) -> CheckedDefinition:
    document = yaml.safe_load(text) or {}
    defaults = {**yaml.safe_load(ACTIVITIES), **STEPS}
    return check(WorkflowSpec.parse({**defaults, **document, **spec}))


def findings_of(text: str = "", **spec: Any) -> list[str]:
    """Severity, place and sentence of each finding, but for activities that no step runs."""
    return [
        f"{finding.severity.value} {finding}"
        for finding in checked(text, **spec).findings
        if not finding.message.startswith("no step runs activity")
    ]


def of_value(expression: str, **spec: Any) -> list[str]:
    """The findings for an expression in a `set`, with the input of the schema above."""
    text = SCHEMA + "steps:\n- {name: do, activity: {name: work}}\n- {name: s, set: {v: x}}\n"
    document = yaml.safe_load(text)
    document["steps"][1]["set"]["v"] = expression
    return findings_of(**{**document, **spec})
