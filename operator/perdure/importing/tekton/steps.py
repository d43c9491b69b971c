"""What only the pod of a task knows: results of its steps, conditions on them, and arguments of arrays.

A step that reads the result of another one, or has a condition, is started by a shell, which reads the files of the results.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

from perdure.importing.expressions import literal
from perdure.importing.programs import not_expanded, quoted
from perdure.importing.reader import Fields, Object, as_text
from perdure.importing.tekton.variables import MARK, Spliced, TaskValues

_MARKED: Final = re.compile(f"{MARK}([-\\w]+)/([-\\w]+){MARK}")
_VARIABLE: Final = "TEKTON_WORD_"
"""The beginning of the names of variables with the words of a command line that are no constants."""
_SHORT: Final = 60
"""Longest word that is written into an expression; longer ones are variables."""


def result_path(step: str, result: str) -> str:
    """Return the path of the file with the result of a step, which all steps of the task share."""
    return f"/tekton/steps/{step}.{result}"


def evaluated_in_the_pod(container: Object, whens: list[Fields], step: Fields, values: TaskValues) -> Object:
    """Return the fields of the container of a step that reads results of other steps, or has a condition.

    Args:
        container: The container; `env` loses the variables that a shell sets.
        whens: The conditions of the step.
        step: The step.
        values: Converts values.
    """
    command, args = container.get("command", []), container.get("args", [])
    line = [*command, *args]
    variables = [each for each in container.get("env", []) if _MARKED.search(str(each.get("value")))]
    if not whens and not variables and not any(map(_MARKED.search, line)):
        return {}
    if not line:
        for each in whens or [step]:
            each.gap("", "needs a command or a script: a shell starts it, if the condition on the results is true")
        return {}
    words = _Words()
    program = [_condition(each, words, values) for each in whens]
    program += [f"export {each['name']}={words.of(str(each['value']))}" for each in variables]
    fields: Object = {}
    if variables:
        fields["env"] = [each for each in container["env"] if each not in variables]
    if "script" in step.data and _MARKED.search(args[1]):
        step.gap("script", "the results of steps are only known in `args` and `env`; pass them there")
        line = [_MARKED.sub("", each) for each in line]
    if not any(map(_MARKED.search, line)):
        start = len(words.constants) + 1
        return {**fields, **_shell([*program, f"shift {start - 1}", 'exec "$@"'], [*words.constants, *line])}
    if any(isinstance(each, Spliced) for each in line):
        step.gap("args", "an array of unknown length next to results of steps; pass the array as one argument")
    program.append(f"exec {' '.join(map(words.of, line))}")
    return {**fields, **_shell(program, words.constants)}


def _shell(program: Iterable[str], words: Iterable[str]) -> Object:
    text = "\n".join(each for each in program if each != "shift 0")
    return {"command": ["sh", "-ec"], "args": [not_expanded(text + "\n").replace("${", "$${"), "perdure", *words]}


class _Words:
    """The words of a program of the shell. What they consist of is passed as its arguments, or read from files."""

    def __init__(self) -> None:
        self.constants: list[str] = []

    def of(self, text: str) -> str:
        """Return a word in double quotes."""
        made, end = "", 0
        for found in _MARKED.finditer(text):
            made += self._constant(text[end : found.start()])
            made += f"$(cat {quoted(result_path(found[1], found[2]))})"
            end = found.end()
        return f'"{made}{self._constant(text[end:])}"'

    def _constant(self, text: str) -> str:
        if not text:
            return ""
        self.constants.append(text)
        return f"${{{len(self.constants)}}}"


def _condition(when: Fields, words: _Words, values: TaskValues) -> str:
    """Return the line that ends the step if a condition is false."""
    if "cel" in when:
        when.gap("cel", "has no counterpart in the condition of a step; use `input`, `operator`, and `values`")
    value, operator = values.evaluated(as_text(when.take("input", "")), when.at("input")), when.text("operator")
    found: Any = when.take("values", [])
    when.drop("cel")
    when.done({})
    listed = [word for each in found for word in values.words(as_text(each), when.at("values"))]
    if any(isinstance(each, Spliced) for each in listed):
        when.gap("values", "must be known before the run; write the values here")
    if operator not in {"in", "notin"}:
        when.gap("operator", f"`{operator}` is not `in` or `notin`")
    tests = " || ".join(f"[ {words.of(value)} = {words.of(each)} ]" for each in listed) or "false"
    return f"{{ {tests}; }} || exit 0" if operator == "in" else f"if {tests}; then exit 0; fi"


def with_spliced(container: Object) -> Object:
    """Take the arguments of a container if some are arrays of unknown length; return the patch of the pod with them."""
    args = container.get("args", [])
    if not any(isinstance(each, Spliced) for each in args):
        return {}
    del container["args"]
    parts: list[str] = []
    for each in args:
        if isinstance(each, Spliced):
            parts.append(f"{each[2:-1]}.map(word, string(word).replace('$', '$$'))")
        else:
            parts.append(f"[{literal(_constant(each, container))}]")
    return {"name": container["name"], "args": "${" + " + ".join(parts) + "}"}


def _constant(word: str, container: Object) -> str:
    """Return a word of a command line; of a long one, or one with an expression, the reference to a new variable."""
    if "$" not in word and len(word) <= _SHORT:
        return word
    variables = container.setdefault("env", [])
    name = f"{_VARIABLE}{len(variables) + 1}"
    variables.append({"name": name, "value": word})
    return f"$({name})"


def without_marks(container: Object, source: Fields) -> None:
    """Report results of steps in fields where only Perdure evaluates expressions."""
    for key, value in container.items():
        found = _MARKED.search(str(value).replace("\\x01", MARK))
        if found:
            source.gap("steps", f"the result `{found[2]}` of a step is only known in `args` and `env` of other steps")
            container[key] = _cleared(value)


def _cleared(value: Any) -> Any:
    if isinstance(value, list):
        return [_cleared(each) for each in value]
    if isinstance(value, dict):
        return {key: _cleared(each) for key, each in value.items()}
    return _MARKED.sub("", value) if isinstance(value, str) else value
