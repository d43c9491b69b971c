"""Converts the words of the command line to the values of options.

typer uses pydantic for this, which takes longer to import than all other modules of a command before its first request.
"""

import math
from collections.abc import Callable
from enum import Enum
from typing import Any, Literal, cast, get_args, get_origin

import typer

Coerce = Callable[[Any], Any]


class Coercion:
    """Converts one parameter, as typer requires."""

    def __init__(self, coerce: Coerce, *, several: bool) -> None:
        self._coerce = coerce
        self._several = several

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert a value, or each of several values.

        Raises:
            BadParameter: A value is invalid.
        """
        if value is None:
            return () if self._several else None
        try:
            return [self._coerce(each) for each in value] if self._several else self._coerce(value)
        except typer.BadParameter as error:
            error.param, error.ctx = param, ctx
            raise
        except ValueError as error:
            raise typer.BadParameter(str(error), ctx=ctx, param=param) from error


def use_light_coercion(parameters: list[Any]) -> list[Any]:
    """Set the conversion of the parameters of a command. Parameters of other types keep the conversion of typer.

    Args:
        parameters: The parameters from typer.

    Returns:
        The same parameters.
    """
    for parameter in parameters:
        descriptor = getattr(parameter, "type_descriptor", None)
        if descriptor is None:
            continue
        annotation, several = descriptor.annotation, False
        if get_origin(annotation) is list:
            (annotation,), several = get_args(annotation), True
        coerce = _coercion(annotation, descriptor.parameter_info)
        if coerce is not None:
            parameter._runtime_param = Coercion(coerce, several=several)  # noqa: SLF001 - the only place where typer looks
    return parameters


def _coercion(annotation: Any, info: Any) -> Coerce | None:
    if info.parser is not None:
        return cast("Coerce", info.parser)
    if annotation in (str, bool):
        return str if annotation is str else _flag
    if annotation in (int, float):
        read, kind = (int, "a whole number") if annotation is int else (_decimal, "a number")
        return lambda value: _number(value, read, kind, info.min, info.max)
    if get_origin(annotation) is Literal:
        return _choice({str(word): word for word in get_args(annotation)})
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _choice({str(word.value): word for word in annotation})
    return None


def _choice(words: dict[str, Any]) -> Coerce:
    def coerce(value: Any) -> Any:
        text = str(value.value) if isinstance(value, Enum) else str(value)
        if text not in words:
            raise ValueError(f"{text!r} is not one of {', '.join(map(repr, words))}")
        return words[text]

    return coerce


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).lower()
    if text not in {"true", "false", "1", "0", "yes", "no"}:
        raise ValueError(f"{value!r} is not `true` or `false`")
    return text in {"true", "1", "yes"}


def _decimal(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _number(value: Any, read: Callable[[str], float], kind: str, least: float | None, most: float | None) -> float:
    try:
        number = read(value)
    except ValueError:
        raise ValueError(f"{value!r} is not {kind}") from None
    if least is not None and number < least:
        raise ValueError(f"{number} is less than {least:g}")
    if most is not None and number > most:
        raise ValueError(f"{number} is more than {most:g}")
    return number
