"""Converts the values in the fields of a task of Tekton: variables become expressions or their values."""

import re
from collections.abc import Mapping
from typing import Any, Final

from perdure.importing.expressions import UntranslatableError
from perdure.importing.field_reader import ConversionReport, Fields, as_text, member
from perdure.importing.tekton_scope import VARIABLE, TaskScope, translated

_ARRAY: Final = re.compile(r"\$\(params(?:\.([-\w]+)|\[['\"]([^'\"]+)['\"]\])\[\*\]\)")


class TaskValues:
    """Converts the values in the containers of a task."""

    def __init__(
        self,
        scope: TaskScope,
        params: Mapping[str, Fields],
        *,
        known: Mapping[str, Any],
        lengths: Mapping[str, int],
        paths: Mapping[str, str],
        report: ConversionReport,
    ) -> None:
        """Create a converter.

        Args:
            scope: The scope of references in the containers.
            params: The declared parameters.
            known: The parameters whose values are known.
            lengths: The lengths of arrays whose values are computed.
            paths: The values of variables for paths.
            report: Collects the parts without a counterpart.
        """
        self._scope = scope
        self._params = params
        self._known = known
        self._lengths = lengths
        self._paths = paths
        self._report = report

    def words(self, text: str, path: str) -> list[str]:
        """Return the words of an argument; an array has several."""
        found = _ARRAY.fullmatch(text)
        if found is None:
            return [self.evaluated(text, path)]
        name = found[1] or found[2]
        default = self._params[name].data.get("default") if name in self._params else None
        values = self._known.get(name, default)
        if name in self._lengths and VARIABLE.search(str(self._known.get(name, "$(params.x)"))):
            return [f"${{{member('input', name)}[{i}]}}" for i in range(self._lengths[name])]
        if not isinstance(values, list) or VARIABLE.search(str(values)):
            self._report.gap(
                path, "the number of arguments must be known before the run; pass the array as one argument"
            )
            return []
        return [as_text(each).replace("${", "$${") for each in values]

    def variable(self, variable: Any, path: str) -> Any:
        """Return an environment variable."""
        if not isinstance(variable, dict) or variable.get("value") is None:
            return self.plain(variable, path)
        return {**variable, "value": self.evaluated(as_text(variable["value"]), f"{path}.value")}

    def evaluated(self, text: str, path: str) -> str:
        """Return a text in which Perdure evaluates expressions."""
        try:
            return translated(text, self._scope.resolve)
        except UntranslatableError as error:
            self._report.gap(path, str(error))
            return VARIABLE.sub("", text).replace("${", "$${")

    def plain(self, value: Any, path: str) -> Any:
        """Return a value without expressions of Perdure, with known parameters replaced by their values."""
        defaults = {name: each.data.get("default") for name, each in self._params.items()}
        known = {**defaults, **self._known}
        made = substituted(
            value, {name: each for name, each in known.items() if each is not None and "$(" not in str(each)}
        )
        made = _with_paths(made, self._paths)
        if VARIABLE.search(str(made)):
            self._report.gap(
                path, "variables are evaluated in `image`, `args`, `env`, and scripts; write the value here"
            )
        return made


def substituted(value: Any, params: Mapping[str, Any]) -> Any:
    """Replace the parameters with known values in a value."""
    if isinstance(value, list):
        return [substituted(each, params) for each in value]
    if isinstance(value, dict):
        return {key: substituted(each, params) for key, each in value.items()}
    if not isinstance(value, str):
        return value
    for name, known in params.items():
        fields = known.items() if isinstance(known, dict) else ()
        for form in (f"$(params.{name})", f'$(params["{name}"])', f"$(params['{name}'])"):
            value = value.replace(form, as_text(known))
        for key, each in fields:
            value = value.replace(f"$(params.{name}.{key})", as_text(each))
        for i, each in enumerate(known if isinstance(known, list) else ()):
            value = value.replace(f"$(params.{name}[{i}])", as_text(each))
    return value


def _with_paths(value: Any, paths: Mapping[str, str]) -> Any:
    """Replace the variables for paths of workspaces and results in a value."""
    if isinstance(value, list):
        return [_with_paths(each, paths) for each in value]
    if isinstance(value, dict):
        return {key: _with_paths(each, paths) for key, each in value.items()}
    if isinstance(value, str):
        for name, path in paths.items():
            value = value.replace(f"$({name})", path)
    return value
