"""Split lists into pages. The token of a page is the position of its first item."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from perdure.frontend.errors import invalid

_Item = TypeVar("_Item")
_DIGITS = 18
MAX_BYTES = 3 * 1024 * 1024
"""Size limit of a page in bytes: SDKs accept responses of up to 4 MiB."""


def page_size(requested: int, limit: int) -> int:
    """The size of a page: the requested number, up to the maximum."""
    return min(requested, limit) if requested > 0 else limit


def page_of(
    items: Sequence[_Item], token: bytes, size: int, limit: int, weigh: Callable[[_Item], int] = lambda _: 0
) -> tuple[Sequence[_Item], bytes]:
    """Return one page of a list, and the token of the next page, which is empty for the last page.

    Args:
        items: The whole list.
        token: The token from the previous page; empty for the first page.
        size: The requested number of items.
        limit: The maximum number of items.
        weigh: Returns the size of an item in the response, in bytes.

    Raises:
        RpcError: The token is invalid.
    """
    if token and (not token.isdigit() or len(token) > _DIGITS):
        raise invalid("invalid next_page_token")
    start = int(token or b"0")
    end = start + page_length(items[start : start + page_size(size, limit)], weigh)
    return items[start:end], str(end).encode() if end < len(items) else b""


def page_length(items: Sequence[_Item], weigh: Callable[[_Item], int]) -> int:
    """How many items from the start of a list fit into one response: at least one, if the list is not empty."""
    total = 0
    for count, item in enumerate(items):
        total += weigh(item)
        if total > MAX_BYTES and count:
            return count
    return len(items)
