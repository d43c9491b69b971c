"""Payloads: JSON texts that cross the border between the operator and pods, and how much of them fits where."""

from contextlib import suppress
from typing import Any, Final

import orjson

from perdure.api.depth import nests_deeper

ANNOTATIONS_LIMIT: Final = 256 * 1024
"""Bytes that all annotations of one object may hold, keys included: the API server's own limit."""

ENVIRONMENT_LIMIT: Final = 32 * 1024
"""Bytes up to which a payload is also given as an environment variable; Linux refuses to start a process whose single
variable exceeds 128 KiB, and images have environments of their own."""

TERMINATION_MESSAGE_LIMIT: Final = 4096
"""Bytes of a termination message that the kubelet reads, from the end of the file."""

POD_TERMINATION_MESSAGES_LIMIT: Final = 12 * 1024
"""Bytes of all termination messages of one pod; each container gets its even share."""

LARGE_RESULT_LIMIT: Final = 252 * 1024
"""Bytes of a result on a Lease: its annotations but for 4 KiB, which hold the names and the cancel request."""

HEARTBEAT_DETAILS_LIMIT: Final = 16 * 1024
"""Bytes of heartbeat details. They ride in the run's status while the activity is open, and in the next pod."""


def encode(value: Any) -> str:
    """Write a payload as compact JSON.

    Args:
        value: Any JSON value.

    Returns:
        The text.
    """
    return orjson.dumps(value).decode()


def size(text: str) -> int:
    """Give the bytes that a text takes.

    Args:
        text: Any text.

    Returns:
        Its length in UTF-8.
    """
    return len(text.encode("utf-8", "surrogatepass"))


def decode(text: str) -> tuple[Any, bool]:
    """Read what a pod wrote: JSON where it is JSON, else the text itself.

    What comes back can always be written again, also inside of a status. JSON that could not be (it nests deeper than
    `MAX_DEPTH`) counts as text, so that nothing a pod writes can stop the operator. Integers beyond 64 bits become
    floating point numbers, as the API server would make them.

    Args:
        text: The pod's text; empty or blank means null.

    Returns:
        The value, and whether it was read as JSON.
    """
    if not text.strip():
        return None, True
    with suppress(orjson.JSONDecodeError):
        value = orjson.loads(text)
        if not nests_deeper(value):
            return value, True
    return text.rstrip("\r\n").encode("utf-8", "replace").decode(), False


def termination_message_limit(containers: int) -> int:
    """Give the bytes that one container's termination message may hold.

    Args:
        containers: How many containers the pod has, init and ephemeral ones included.

    Returns:
        At most 4,096; less where the pod has more than three containers.
    """
    return min(TERMINATION_MESSAGE_LIMIT, POD_TERMINATION_MESSAGES_LIMIT // max(containers, 1))
