"""Checks the artifacts of an activity, and returns the shape of the artifacts of a step."""

import posixpath
from collections.abc import Iterator
from typing import Final

from perdure.api import reserved
from perdure.api.kinds.artifact import Artifacts
from perdure.api.names import LOG_ARTIFACT, RESULT_ARTIFACT
from perdure.language.checks import flow as flows
from perdure.language.checks.shapes import ANY, REFERENCE, TEXT, Shape, known_object
from perdure.language.expression_text import ExpressionError
from perdure.language.expressions import compile_template
from perdure.language.program import CompiledStep, Finding, Program

_ARTIFACT: Final = known_object(REFERENCE)
_COPIED: Final = known_object({**REFERENCE, "copy": TEXT})
_OWN_FOLDERS: Final = (reserved.MOUNT_PATH, reserved.FILES_PATH, reserved.LOG_PATH, reserved.RESULT_PATH)
_NONE: Final = known_object({})


def artifacts_shape(compiled: CompiledStep, program: Program) -> Shape:
    """Return the shape of `steps.<name>.artifacts`.

    Args:
        compiled: The step.
        program: The program of the step.
    """
    definition = program.activities.get(compiled.activity) if compiled.activity is not None else None
    if definition is None or definition.artifacts is None:
        return _NONE
    outputs = definition.artifacts.outputs
    ours = [RESULT_ARTIFACT] if definition.artifacts.large_results else []
    ours += [LOG_ARTIFACT] if definition.artifacts.archive_logs else []
    uncertain = bool(compiled.step.catch) or flows.may_be_skipped(compiled)
    optional = [each.name for each in outputs if each.optional or uncertain]
    fields = {each.name: _ARTIFACT if each.key is None else _COPIED for each in outputs}
    found = known_object({**fields, **dict.fromkeys(ours, _ARTIFACT)}, optional=[*optional, *ours])
    if not compiled.step.for_each:
        return found
    return ANY if uncertain else {"type": "array", "items": found}


def of_artifacts(path: str, artifacts: Artifacts) -> Iterator[Finding]:
    """Find the mistakes in the artifacts of an activity.

    Args:
        path: The path of the artifacts.
        artifacts: The artifacts.
    """
    for i, given in enumerate(artifacts.inputs):
        where = f"{path}.inputs[{i}]"
        url = given.http.url if given.http is not None else ""
        if url and not url.startswith(("http://", "https://", "${")):
            yield Finding(f"{where}.http.url", "must begin with `http://` or `https://`")
        if given.from_ is not None and not _is_expression(given.from_):
            yield Finding(f"{where}.from", "must be one expression, such as `${input.report}`")
    for i, output in enumerate(artifacts.outputs):
        message = _misplaced(output.path.rstrip("/"), artifacts)
        if message is not None:
            yield Finding(f"{path}.outputs[{i}].path", message)


def _misplaced(target: str, artifacts: Artifacts) -> str | None:
    """Return the mistake in the path of an output; None if it is valid."""
    parent = posixpath.dirname(target)
    if ".." in target.split("/"):
        return "must not contain `..`"
    if any(_within(target, own) for own in _OWN_FOLDERS):
        return f"must not be in `{target if parent == '/' else parent}`, which is a folder of Perdure"
    if any(_within(target, each.path.rstrip("/")) for each in artifacts.inputs):
        return "must not be in an input artifact, which is read-only"
    return None


def _within(path: str, folder: str) -> bool:
    return f"{path}/".startswith(f"{folder}/")


def _is_expression(text: str) -> bool:
    try:
        return compile_template(text).whole
    except ExpressionError:
        return True  # where expressions are checked, it is reported
