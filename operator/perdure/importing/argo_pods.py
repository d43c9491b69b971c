"""Converts the containers of Argo's templates to containers of activities."""

import re
from collections.abc import Callable
from typing import Any, Final

import yaml

from perdure.importing.argo_scope import ROOTS, PodScope
from perdure.importing.computed import Computed, computed, parsed
from perdure.importing.expressions import TAG, UntranslatableError, template
from perdure.importing.field_reader import ConversionReport, Fields, Object
from perdure.importing.programs import Returns, not_expanded, option_of, returning

_NOT_EVALUATED: Final = "tags are not evaluated in labels and annotations; write the value here"


def is_tag(content: str) -> bool:
    """Whether a text in braces is a tag of Argo."""
    return content.startswith("=") or re.split(r"[.\[]", content, maxsplit=1)[0].strip() in ROOTS


class Containers:
    """Converts the containers of one template."""

    def __init__(self, scope: PodScope, report: ConversionReport) -> None:
        self._scope = scope
        self._report = report

    def main(self, container: Fields, returns: Returns) -> Object:
        """Return the container of an activity.

        Args:
            container: The `container` of a template.
            returns: What steps read of it.
        """
        made = self.plain(container)
        if not returns:
            return _with_fixed_command(made, container)
        if not made.get("command"):  # the entry point of the image is not known
            container.gap("command", "must be set: to return outputs, a shell starts the command")
            return made
        return {**made, **returning([*made.pop("command"), *made.pop("args", [])], returns)}

    def script(self, script: Fields, returns: Returns) -> Object:
        """Return the container of an activity that runs a script."""
        source = self.text(not_expanded(script.text("source") or ""), script.at("source"))
        made = self.plain(script)
        command = [*made.pop("command", ["sh"]), *made.pop("args", [])]
        option = option_of(command[0])
        if option is None:
            script.gap("command", f"`{command[0]}` has no known option for a program; put the script into the image")
            return {**made, "command": command}
        if returns:
            return {**made, **returning([*command, option, source], returns)}
        return {**made, "command": command, "args": [option, source]}

    def as_script(self, script: Fields, *, prints: bool) -> Object:
        """Return the `script` of an activity."""
        source = self.text(script.text("source") or "", script.at("source"))
        made = self.plain(script)
        command = made.pop("command", None)
        if command and any("${" in word.replace("$${", "") for word in command):
            script.gap("command", "the interpreter must not be computed; name it")
        if command and command[1:] == ["-c"]:  # such as `sh -c`, which runs the executable file of Argo
            command = command[:1]
        given = {"command": [word.replace("$${", "${") for word in command]} if command else {}
        return {**made, **given, **({"result": "Output"} if prints else {}), "source": source or "\n"}

    def plain(self, container: Fields) -> Object:
        """Return a container with converted expressions, otherwise unchanged."""
        if container.data.get("name") in {"", "main"}:
            container.drop("name")
        container.drop("mirrorVolumeMounts")
        made: Object = {}
        for key in list(container.data):
            value = container.take(key)
            if value not in (None, {}, []):
                made[key] = self._field(key, value, container.at(key))
        return made

    def _field(self, key: str, value: Any, path: str) -> Any:
        if key in {"args", "command"} and isinstance(value, list):
            return [self.text(str(each), f"{path}[{i}]") for i, each in enumerate(value)]
        if key == "env" and isinstance(value, list):
            return [self._variable(each, f"{path}[{i}]") for i, each in enumerate(value)]
        return self.text(str(value), path) if key == "image" else self.computed(value, path)

    def _variable(self, variable: Any, path: str) -> Any:
        if not isinstance(variable, dict) or variable.get("value") is None:
            return self.computed(variable, path)
        return {**variable, "value": self.text(str(variable["value"]), f"{path}.value")}

    def text(self, text: str, path: str) -> str:
        """Return a text with converted tags; those without a counterpart are reported and removed."""
        try:
            return template(text, self._scope.resolve, is_tag)
        except UntranslatableError as error:
            self._report.gap(path, str(error))
            return TAG.sub("", text).replace("${", "$${")

    def patch(self, text: str, path: str) -> Any:
        """Return a `podSpecPatch`, with `Computed` for texts with tags.

        Raises:
            ValueError: The text is not a valid patch.
        """
        try:
            return parsed(text, self._scope.resolve, is_tag, computed)
        except yaml.YAMLError as error:
            raise ValueError(" ".join(str(error).split())) from error
        except UntranslatableError as error:
            self._report.gap(path, str(error))
            return {}

    def computed(self, value: Any, path: str) -> Any:
        """Return the value of a field of a pod, with `Computed` for texts with tags."""
        return _changed(value, path, lambda text, where: computed(self.text(text, where)))

    def fixed(self, value: Any, path: str) -> Any:
        """Return the value of a field that is not evaluated. Tags are reported, unless their values are known."""

        def change(text: str, where: str) -> str:
            made = computed(self.text(text, where))
            if isinstance(made, Computed):
                self._report.gap(where, _NOT_EVALUATED)
            return str(made)

        return _changed(value, path, change)


def _changed(value: Any, path: str, change: Callable[[str, str], str]) -> Any:
    if isinstance(value, str):
        return change(value, path)
    if isinstance(value, list):
        return [_changed(each, f"{path}[{i}]", change) for i, each in enumerate(value)]
    if isinstance(value, dict):
        return {key: _changed(each, f"{path}.{key}", change) for key, each in value.items()}
    return value


def _with_fixed_command(container: Object, source: Fields) -> Object:
    """Return a container without expressions in `command`: words from the first expression on become arguments."""
    command = container.get("command", [])
    first = next((i for i, word in enumerate(command) if "${" in word), len(command))
    if first == 0 and command:
        source.gap("command", "the program must not be computed; start it with a shell, with the tag as an argument")
    if 0 < first < len(command):
        container["args"] = [*command[first:], *container.get("args", [])]
    kept = [word.replace("$${", "${") for word in command[:first]]
    return {**container, **({"command": kept} if kept else {})}
