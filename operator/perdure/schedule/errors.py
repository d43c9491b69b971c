"""What can be wrong with the times of a Schedule that the API server could not see.

``InvalidTimesError`` has the reason for the condition `Ready`, and a sentence that names the field and says what to write
instead.
"""

from perdure.api.reasons import ConditionReason


class InvalidTimesError(Exception):
    """The times of a Schedule cannot be followed; `reason` is one of the condition `Ready`."""

    def __init__(self, message: str, reason: ConditionReason = ConditionReason.INVALID_SPEC) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
