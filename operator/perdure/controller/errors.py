"""What the controller tells its callers that cannot be done."""

import asyncio
from datetime import datetime
from typing import Any

from perdure.api.reasons import ConditionReason


class RefusedError(Exception):
    """What is asked cannot be done, now or later; the message says why and what can be done instead."""

    def __init__(self, reason: ConditionReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class NotYetError(Exception):
    """Work on a key needs something that is being made elsewhere: a queue gives its worker to other keys until it is there.

    The queue keeps what was made until the key was worked on again.
    """

    def __init__(self, awaited: asyncio.Future[Any], *, until: datetime | None = None) -> None:
        """Wait for a future.

        Args:
            awaited: When it is done, whatever comes of it, the key is worked on again.
            until: When the key is worked on again even if it is not; None: not before.
        """
        super().__init__("it is being made")
        self.awaited = awaited
        self.until = until
