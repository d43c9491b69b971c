"""Splits lists into pages: the token of a page is the position at which it begins."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from perdure.frontend.errors import invalid

_Item = TypeVar("_Item")
_DIGITS = 18
MAX_BYTES = 3 * 1024 * 1024
"""Of a page: SDKs take answers of 4 MiB."""


def page_size(wanted: int, most: int) -> int:
    """The size of a page: the requested number, up to the maximum."""
    return min(wanted, most) if wanted > 0 else most


def page_of(
    found: Sequence[_Item], token: bytes, size: int, most: int, weigh: Callable[[_Item], int] = lambda _: 0
) -> tuple[Sequence[_Item], bytes]:
    """One page of a list, and the token of the next one; empty where none follows.

    Args:
        found: The whole list.
        token: The one that came with the page before; empty for the first.
        size: How many are wanted.
        most: How many there may be.
        weigh: How many bytes each takes of the answer.

    Raises:
        RpcError: The token is invalid.
    """
    if token and (not token.isdigit() or len(token) > _DIGITS):
        raise invalid("invalid next_page_token")
    start = int(token or b"0")
    end = start + that_fit(found[start : start + page_size(size, most)], weigh)
    return found[start:end], str(end).encode() if end < len(found) else b""


def that_fit(found: Sequence[_Item], weigh: Callable[[_Item], int]) -> int:
    """How many of a list, from its beginning, fit into one answer; one at the least, if there is one."""
    total = 0
    for count, item in enumerate(found):
        total += weigh(item)
        if total > MAX_BYTES and count:
            return count
    return len(found)
