"""Converts the hooks of Argo's workflows: steps that run when a run starts, and the handler of its end."""

import re
from typing import Final

from perdure.importing.argo_calls import Book
from perdure.importing.argo_flow import FlowBuilder
from perdure.importing.argo_scope import Scope, WorkflowFacts
from perdure.importing.field_reader import Fields, Object

LONGEST_HANDLER: Final = "1d"
_RUNNING: Final = re.compile(r"\s*workflow\.status\s*==\s*['\"]Running['\"]\s*")
"""The condition of a hook that runs when the workflow starts."""


def starting_steps(book: Book, hooks: Fields, workflow: WorkflowFacts) -> list[Object]:
    """Return the steps for the hooks that run when the workflow starts. Their failures have no effect."""
    flow = FlowBuilder(book, "", Scope("input", workflow))
    for name in [each for each in hooks.data if each != "exit"]:
        hook = hooks.part(name)
        if not _RUNNING.fullmatch(hook.text("expression") or ""):
            hook.gap("expression", "only hooks of the status `Running`, and `exit`, have a counterpart; add steps")
            continue
        step = {"name": f"hook-{name}", **hook.data, "continueOn": {"failed": True}}
        flow.steps(Fields({"steps": [[step]]}, hook.path, hook.report))
    return [{**step, "needs": []} for step in flow.made]


def exit_handler(book: Book, spec: Fields, hooks: Fields, workflow: WorkflowFacts) -> Object:
    """Return the `finally` for `hooks.exit` or `onExit`, if the workflow has one."""
    hook = hooks.take("exit")
    old = spec.text("onExit")
    data = hook if isinstance(hook, dict) else {"template": old} if old else None
    if data is None:
        return {}
    flow = FlowBuilder(book, "", Scope("input", workflow))
    flow.steps(Fields({"steps": [[{"name": "on-exit", **data}]]}, spec.at("onExit"), spec.report))
    return {"finally": {"block": book.block("on-exit", flow.made), "timeout": LONGEST_HANDLER}}
