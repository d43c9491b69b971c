"""The finding of a check."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from perdure.client.errors import ForbiddenError

_MAX_NAMED = 3


class Result(StrEnum):
    """The result of a check."""

    OK = "OK"
    WARNING = "Warning"
    """The check passed, but someone should review the finding."""
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    """The user has no permission for the check."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The finding of a check."""

    check: str
    result: Result
    message: str
    fix: str = ""
    """The fix; empty if the result is `OK`."""

    def as_json(self) -> dict[str, str]:
        """Return the finding as JSON."""
        fix = {"fix": self.fix} if self.fix else {}
        return {"check": self.check, "result": str(self.result), "message": self.message, **fix}


def ok(check: str, message: str) -> CheckResult:
    """Return the finding of a check that passed."""
    return CheckResult(check=check, result=Result.OK, message=message)


def failed(check: str, message: str, fix: str) -> CheckResult:
    """Return the finding of a check that failed."""
    return CheckResult(check=check, result=Result.FAILED, message=message, fix=fix)


def warning(check: str, message: str, fix: str) -> CheckResult:
    """Return a finding that someone should review."""
    return CheckResult(check=check, result=Result.WARNING, message=message, fix=fix)


def unknown(check: str, error: ForbiddenError) -> CheckResult:
    """Return the finding of a check that the user has no permission for."""
    message = str(error.__cause__ or error)
    return CheckResult(check=check, result=Result.UNKNOWN, message=message, fix="ask a cluster administrator to run it")


def counted(number: int, singular: str, plural: str = "") -> str:
    """Write a number with its noun, such as `1 run` or `2 runs`."""
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"


def some(texts: Sequence[str]) -> str:
    """Write the first few texts, and the number of further ones."""
    more = len(texts) - _MAX_NAMED
    return "; ".join(texts[:_MAX_NAMED]) + (f"; and {more} more" if more > 0 else "")
