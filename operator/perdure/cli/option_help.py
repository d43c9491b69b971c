"""Shows the types of options as command lines usually do: `--timeout TEXT`, not `--timeout <str>`, which is a Python type."""

from typing import Any

_TYPES = {"str": "TEXT", "int": "N", "float": "N", "int range": "N", "float range": "N"}


def use_plain_types(parameters: list[Any]) -> list[Any]:
    """Set how the help shows the types of the parameters of a command.

    Args:
        parameters: The parameters from typer.

    Returns:
        The same parameters.
    """
    for parameter in parameters:
        if not isinstance(getattr(parameter, "display_type", None), _PlainType):
            parameter.display_type = _PlainType(parameter)
    return parameters


class _PlainType:
    """Replaces the method of a parameter that names its type."""

    def __init__(self, parameter: Any) -> None:
        self._argument = parameter.param_type_name == "argument"
        self._original = parameter.display_type

    def __call__(self, ctx: Any) -> str:
        """Return the type; empty for an argument, whose name suffices."""
        shown = str(self._original(ctx))
        name = shown.removeprefix("<").removesuffix(">").removeprefix("list[").removesuffix("]")
        if name in _TYPES:
            return "" if self._argument else _TYPES[name]
        return f"[{name}]" if "|" in name and name != shown else shown
