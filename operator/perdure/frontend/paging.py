"""Lists in pages: the token of a page is the place at which it begins."""

from collections.abc import Sequence
from typing import TypeVar

from perdure.frontend.errors import invalid

_Item = TypeVar("_Item")


def page_of(found: Sequence[_Item], token: bytes, size: int, most: int) -> tuple[Sequence[_Item], bytes]:
    """One page of a list, and the token of the next one; empty where none follows.

    Args:
        found: The whole list.
        token: The one that came with the page before; empty for the first.
        size: How many are wanted; 0: as many as there may be.
        most: How many there may be.

    Raises:
        RpcError: the token is none of ours.
    """
    try:
        start = int(token or b"0")
    except ValueError:
        raise invalid("invalid next_page_token") from None
    end = start + min(size or most, most)
    return found[start:end], str(end).encode() if end < len(found) else b""
