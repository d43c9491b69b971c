"""Lists in pages: the token of a page is the place at which it begins."""

from collections.abc import Sequence
from typing import TypeVar

from perdure.frontend.errors import invalid

_Item = TypeVar("_Item")
_DIGITS = 18


def page_size(wanted: int, most: int) -> int:
    """How many a page has: as many as are wanted, as long as there may be so many; else that."""
    return min(wanted, most) if wanted > 0 else most


def page_of(found: Sequence[_Item], token: bytes, size: int, most: int) -> tuple[Sequence[_Item], bytes]:
    """One page of a list, and the token of the next one; empty where none follows.

    Args:
        found: The whole list.
        token: The one that came with the page before; empty for the first.
        size: How many are wanted.
        most: How many there may be.

    Raises:
        RpcError: the token is none of ours.
    """
    if token and (not token.isdigit() or len(token) > _DIGITS):
        raise invalid("invalid next_page_token")
    start = int(token or b"0")
    end = start + page_size(size, most)
    return found[start:end], str(end).encode() if end < len(found) else b""
