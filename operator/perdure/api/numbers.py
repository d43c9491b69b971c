"""Whole numbers of JSON, as the API server keeps them: beyond 64 bits, they become floating-point numbers."""

import math


def read_integer(text: str) -> int | float:
    """Read a whole number; for `json.loads(…, parse_int=read_integer)`, to which numbers of any size are integers.

    The bounds are those of orjson, which reads and writes everything else.

    Args:
        text: Its digits.

    Returns:
        An integer from -2**63 to 2**64 - 1, or the nearest floating-point number.

    Raises:
        ValueError: It is too large even for a floating-point number.
    """
    value = float(text)
    if math.isinf(value):
        raise ValueError("the number is too large")
    exact = int(text)
    return exact if -(2**63) <= exact < 2**64 else value
