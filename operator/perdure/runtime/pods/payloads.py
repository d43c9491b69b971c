"""Payloads: JSON texts that the operator and pods exchange, and their maximum sizes."""

import json
import re
from contextlib import suppress
from typing import Any, Final

import orjson

from perdure.api.json_values import exact_integer, exact_number, nests_deeper

ANNOTATIONS_LIMIT: Final = 256 * 1024
"""Maximum bytes of all annotations of an object, keys included: the API server's limit."""

ENVIRONMENT_LIMIT: Final = 32 * 1024
"""Maximum bytes of a payload that is also passed as an environment variable. Linux does not start a process with a variable of
more than 128 KiB, and images have environments of their own."""

TERMINATION_MESSAGE_LIMIT: Final = 4096
"""Bytes that the kubelet reads from the end of a termination message."""

POD_TERMINATION_MESSAGES_LIMIT: Final = 12 * 1024
"""Maximum bytes of all termination messages of a pod; each container gets an equal share."""

LARGE_RESULT_LIMIT: Final = 252 * 1024
"""Maximum bytes of a result on a Lease: its annotations minus 4 KiB for the names and the cancel request."""

HEARTBEAT_DETAILS_LIMIT: Final = 16 * 1024
"""Maximum bytes of heartbeat details, which the run's status contains while the activity is open, and the next pod."""

_LONG_INTEGER: Final = re.compile(r"[0-9]{19}", re.ASCII)
"""What every integer of more than 64 bits contains."""


def encode(value: Any) -> str:
    """Encode a payload as compact JSON.

    Args:
        value: Any JSON value.

    Returns:
        The text.
    """
    return orjson.dumps(value).decode()


def size(text: str) -> int:
    """Return the size of a text in bytes.

    Args:
        text: Any text.

    Returns:
        Its length in UTF-8.
    """
    return len(text.encode("utf-8", "surrogatepass"))


def decode(text: str) -> tuple[Any, bool]:
    """Decode a text from a pod: return the value if it is JSON, otherwise the text itself, without newlines at its end.

    The result can always be encoded again, also as part of a status. JSON that nests deeper than `MAX_DEPTH` counts as
    text, so nothing that a pod writes can stop the operator. A number counts as text unless writing it again gives the
    same characters. In objects and lists, integers of more than 64 bits become texts with the same digits.

    Args:
        text: The pod's text; empty or blank means null.

    Returns:
        The value, and whether it was read as JSON.
    """
    if not text.strip():
        return None, True
    plain = text.rstrip("\r\n")
    with suppress(ValueError, RecursionError):
        value = orjson.loads(text)
        if isinstance(value, int | float) and not isinstance(value, bool):
            number = exact_number(plain)
            return (plain, False) if number is None else (number, True)
        if _LONG_INTEGER.search(text):
            value = json.loads(text, parse_int=exact_integer)
        if not nests_deeper(value):
            return value, True
    return plain.encode("utf-8", "replace").decode(), False


def termination_message_limit(containers: int) -> int:
    """Return the maximum bytes of one container's termination message.

    Args:
        containers: Number of containers in the pod, including init and ephemeral containers.

    Returns:
        At most 4,096; less if the pod has more than three containers.
    """
    return min(TERMINATION_MESSAGE_LIMIT, POD_TERMINATION_MESSAGES_LIMIT // max(containers, 1))
