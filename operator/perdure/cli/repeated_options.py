"""Rejects an option that is given twice but takes one value: the first value would be lost silently."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import typer

_OVERRIDABLE: Final = frozenset(
    {
        "--address",
        "--audience",
        "--color",
        "--context",
        "--namespace",
        "--output",
        "--service",
        "--service-account",
        "--system-namespace",
        "--time-format",
        "--timeout",
    }
)
"""The options about the connection and the output. A shell alias sets them, and the user overrides them, as with kubectl."""


def check_repeated(given: Iterable[Any]) -> None:
    """Check that no option for one value is given twice.

    Args:
        given: The parameters from typer, each as often as the command line has it.

    Raises:
        BadParameter: An option is given twice.
    """
    for parameter, times in Counter(given).items():
        single = parameter.param_type_name == "option" and not parameter.multiple and not parameter.is_flag
        if times > 1 and single and _OVERRIDABLE.isdisjoint(parameter.opts):
            raise typer.BadParameter(f"is given {times} times, but takes one value; give it once", param=parameter)
