"""Errors in the times of a Schedule that the API server does not detect.

``InvalidTimesError`` has the reason for the condition `Ready`, and a sentence that names the field and says what to write
instead.
"""

from perdure.api.reasons import ConditionReason


class InvalidTimesError(Exception):
    """The times of a Schedule are not valid; `reason` is a reason of the condition `Ready`."""

    def __init__(
        self, sentence: str, reason: ConditionReason = ConditionReason.INVALID_SPEC, *, path: str = ""
    ) -> None:
        self.sentence = sentence
        self.reason = reason
        self.path = path
        """The field path, such as `spec.cron[0]`; empty if only the caller knows it."""
        super().__init__(self.message)

    @property
    def message(self) -> str:
        """The message, with the field path in front."""
        return f"{self.path}: {self.sentence}" if self.path else self.sentence

    def below(self, path: str) -> "InvalidTimesError":
        """Return the same error with `path` in front of its field path."""
        return InvalidTimesError(self.sentence, self.reason, path=f"{path}.{self.path}" if self.path else path)
