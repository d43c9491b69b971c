"""What goes wrong on the way to an answer, told as one sentence with its remedy."""

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit status of every verb: as grep and diff do it, 1 is an answer and 2 is trouble."""

    YES = 0
    """It was done; the run that was waited for completed; the history replays."""

    NO = 1
    """There is an answer, and it is no: the run failed, the history does not replay."""

    TROUBLE = 2
    """There is no answer: wrong usage, no cluster, no such run, not allowed."""

    TIMEOUT = 124
    """The answer did not come in time, as with the command `timeout`."""


class CliError(Exception):
    """A verb failed. The message is one sentence: what is wrong, and what to do."""

    status = ExitCode.TROUBLE
    """The exit status that it leads to."""
