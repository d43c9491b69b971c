"""Functions on optionals. `orValue` and `or`, which may not evaluate their argument, are in `operators`."""

from datetime import timedelta
from typing import Any

from perdure.language.cel.errors import EvaluationError
from perdure.language.cel.expression_limits import Meter
from perdure.language.cel.functions.registry import implement
from perdure.language.cel.values import NONE, Optional


@implement("optional.of", "dyn")
def _optional_of(_meter: Meter, value: Any) -> Optional:
    return Optional(present=True, value=value)


@implement("optional.none", "")
def _optional_none(_meter: Meter) -> Optional:
    return NONE


@implement("optional.ofNonZeroValue", "dyn")
def _optional_of_non_zero(_meter: Meter, value: Any) -> Optional:
    empty = value is None or value in (False, 0, "", b"", timedelta(0)) or value in ([], {})
    return NONE if empty else Optional(present=True, value=value)


@implement("hasValue", "optional")
def _has_value(_meter: Meter, value: Optional) -> bool:
    return value.present


@implement("value", "optional")
def _value(_meter: Meter, value: Optional) -> Any:
    if not value.present:
        raise EvaluationError("the optional is empty; give a value for that case with orValue()")
    return value.value
