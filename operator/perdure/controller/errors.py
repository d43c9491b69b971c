"""What the controller tells its callers that cannot be done."""

from perdure.api.reasons import ConditionReason


class RefusedError(Exception):
    """What is asked cannot be done, now or later; the message says why and what can be done instead."""

    def __init__(self, reason: ConditionReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
