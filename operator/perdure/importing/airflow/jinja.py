"""Translates Airflow's templates, in Jinja, to the tags of Argo, which the import of Argo translates further."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from perdure.importing.expressions import UntranslatableError

LOGICAL_DATE: Final = "logical-date"
"""The parameter with the logical date of a run."""
RESULT: Final = "return-value"
"""The output of a task with its XCom."""
_PIECE: Final = re.compile(r"\{\{(.*?)\}\}|(\{%.*?%\}|\{#.*?#\})", re.DOTALL)
_KEY: Final = r"(?:\.(\w+)|\[['\"]([^'\"]+)['\"]\]|\.get\(['\"]([^'\"]+)['\"]\))"
_PARAMETER: Final = re.compile(rf"(?:params|dag_run\.conf){_KEY}")
_PULLED: Final = re.compile(
    r"(?:ti|task_instance)\.xcom_pull\((?:task_ids=)?['\"]([^'\"]+)['\"](?:,\s*(?:key=)?['\"]return_value['\"])?\)"
)
_DATES: Final = {
    "ds": "2006-01-02",
    "ds_nodash": "20060102",
    "ts_nodash": "20060102T150405",
    "logical_date | ds": "2006-01-02",
    "logical_date | ds_nodash": "20060102",
}
"""The variables that format the logical date, in UTC, and their layouts."""
_REFERENCE: Final = f"workflow.parameters['{LOGICAL_DATE}']"
_VARIABLES: Final = {
    **{name: f"=sprig.date('{layout}', {_REFERENCE})" for name, layout in _DATES.items()},
    "ts": f"=replace({_REFERENCE}, 'Z', '+00:00')",
    "run_id": "workflow.name",
    "dag_run.run_id": "workflow.name",
    "ti.try_number": "=asInt(retries) + 1",
    "task_instance.try_number": "=asInt(retries) + 1",
}
_ADVICE: Final = {
    "var": "set a variable of the container from a ConfigMap",
    "conn": "set a variable of the container from a Secret",
    "macros": "compute it in the container",
}


@dataclass
class Templates:
    """Translates the templates of one task, and notes what they read."""

    dag: str
    task: str
    tasks: dict[str, str]
    """The names of the tasks of the DAG in Argo, by their IDs."""
    report: Callable[[str, str], None]
    """Reports a part that has no counterpart: its path, and a message."""
    parameters: set[str] = field(default_factory=set)
    """The parameters of the DAG that are read."""
    pulled: set[str] = field(default_factory=set)
    """The tasks whose XCom is read, by their IDs."""
    dated: bool = False
    """Whether the logical date is read."""

    def of(self, value: Any, path: str) -> Any:
        """Return a value whose texts have tags of Argo in place of templates, at any depth."""
        if isinstance(value, list):
            return [self.of(each, f"{path}[{i}]") for i, each in enumerate(value)]
        if isinstance(value, dict):
            return {key: self.of(each, f"{path}.{key}") for key, each in value.items()}
        return self._text(value, path) if isinstance(value, str) else value

    def _text(self, text: str, path: str) -> str:
        made, end = "", 0
        for found in _PIECE.finditer(text):
            made += text[end : found.start()]
            end = found.end()
            try:
                made += "{{" + self._tag(found[1] or found[2]) + "}}"
            except UntranslatableError as error:
                self.report(path, str(error))
        return made + text[end:]

    def _tag(self, content: str) -> str:
        """Return the tag of Argo for the content of a template.

        Raises:
            UntranslatableError: It has no counterpart.
        """
        content = " ".join(content.split())
        if content in _VARIABLES:
            self.dated |= LOGICAL_DATE in _VARIABLES[content]
            return _VARIABLES[content]
        literals = {"dag.dag_id": self.dag, "task.task_id": self.task, "ti.task_id": self.task}
        if content in literals:
            return f"='{literals[content]}'"
        parameter = _PARAMETER.fullmatch(content)
        if parameter:
            name = next(each for each in parameter.groups() if each)
            self.parameters.add(name)
            return f"workflow.parameters.{name}"
        pulled = _PULLED.fullmatch(content)
        if pulled and pulled[1] in self.tasks:
            self.pulled.add(pulled[1])
            return f"tasks.{self.tasks[pulled[1]]}.outputs.parameters.{RESULT}"
        advice = _ADVICE.get(content.split(".")[0], "pass the value as a parameter, or compute it in the container")
        raise UntranslatableError(f"`{content}` has no counterpart; {advice}")
