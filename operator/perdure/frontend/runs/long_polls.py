"""Tokens of long polls, which identify the content of a description. Pure."""

import hashlib

from google.protobuf.message import Message

from perdure.frontend.errors import invalid


def token_of(run_id: str, info: Message) -> bytes:
    """The token of a description; it changes if the content changes."""
    return f"{run_id}/{hashlib.sha256(info.SerializeToString(deterministic=True)).hexdigest()}".encode()


def check(token: bytes, run_id: str) -> None:
    """Check that a token belongs to a run.

    Raises:
        RpcError: The token is not valid, or belongs to another run.
    """
    named, found, digest = token.partition(b"/")
    if not found or len(digest) != hashlib.sha256().digest_size * 2:
        raise invalid("invalid long poll token")
    if named != run_id.encode():
        raise invalid("long poll token does not match execution")
