"""Messages about the results of activities in pods: doubtful results, a missing output, and archived logs.

A result is doubtful if it is empty although an expression reads it, or if it looks like JSON but is not valid.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import orjson

from perdure.language.expressions import Template
from perdure.language.program import CompiledStep, Program
from perdure.language.step_paths import Path

_READS_OUTPUT = re.compile(r"""\bsteps(?:\.(\w+)|\[\s*(["'])([^"']+)\2\s*\])\.output\b""")
"""An expression that assumes that a step has an output; `.?output` does not."""
ONLY_LOGGED: Final = "what a container prints is only logged"
"""The advice for an activity that returned nothing."""


def outputs_read(templates: Iterable[Template]) -> frozenset[str]:
    """Find the steps whose outputs expressions read, by name."""
    sources = (source for template in templates for source in template.sources)
    return frozenset(found[1] or found[3] for source in sources for found in _READS_OUTPUT.finditer(source))


def result_warning(program: Program, path: str, result: Any) -> str:
    """Return a warning about a doubtful result of an activity in a pod.

    Args:
        program: The program of the run.
        path: The path of the step of the activity.
        result: The result.

    Returns:
        A short clause for users; empty if the result is not doubtful.
    """
    parsed = Path.parse(path)
    if parsed.is_compensation:
        return ""  # no expression reads what a compensation returns
    name = parsed.step
    steps = [flow.by_name[name] for flow in program.flows.values() if name in flow.by_name]
    if not steps or not all(_by_pod(program, step) for step in steps):
        return ""
    if isinstance(result, str):
        return _unreadable(result)
    if result is None and name in program.outputs_read:
        return f"`steps.{name}.output` is null: no result in /dev/termination-log"
    return ""


def no_output(program: Program, output: Any) -> str:
    """Explain why a completed run has no output if an activity should have returned it; empty otherwise."""
    if output is not None or program.main.output is not None or not program.main.steps:
        return ""
    last = program.main.steps[-1]
    if not _by_pod(program, last):
        return ""
    return f"it has no output: its last step `{last.name}` left no result in /dev/termination-log; {ONLY_LOGGED}"


def _by_pod(program: Program, step: CompiledStep) -> bool:
    definition = program.activities.get(step.activity) if step.activity is not None else None
    return definition is not None and definition.worker is None


def _unreadable(result: str) -> str:
    """Return the error in a text that looks like a JSON object or list."""
    if not result.lstrip().startswith(("{", "[")):
        return ""
    try:
        orjson.loads(result)
    except orjson.JSONDecodeError as error:
        return f"the result is text: it looks like JSON, but cannot be read ({error})"
    return ""


def archives_log(program: Program, path: str) -> bool:
    """Whether the attempts of a step archive their logs.

    Args:
        program: The program of the run.
        path: The path of the step.
    """
    parsed = Path.parse(path)
    if parsed.is_compensation:
        return False  # it has another activity than the step that it compensates
    activities = {flow.by_name[parsed.step].activity for flow in program.flows.values() if parsed.step in flow.by_name}
    artifacts = [given.artifacts for name, given in program.activities.items() if name in activities]
    return bool(artifacts) and all(each is not None and each.archive_logs for each in artifacts)
