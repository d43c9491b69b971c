"""The symbols in the output."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The symbols in the output."""

    icons: Mapping[str, str]
    """Icons by word; each is one column wide."""
    branch: str
    last: str
    pipe: str
    ellipsis: str
    dash: str
    """The symbol for a missing value."""
    bars: str
    """The symbols of a timeline: waiting, starting, running, and the time around them."""


UNICODE = Glyphs(
    icons={
        **dict.fromkeys(("Succeeded", "Completed", "OK"), "✓"),
        **dict.fromkeys(("Failed", "TimedOut"), "✗"),
        **dict.fromkeys(("Cancelled", "Terminated", "Stopped", "CancelRequested"), "⊘"),
        **dict.fromkeys(("Running", "ContinuedAsNew"), "●"),
        **dict.fromkeys(("Scheduled", "Waiting"), "◔"),
        **dict.fromkeys(("BackingOff", "CircuitOpen"), "↻"),
        **dict.fromkeys(("Skipped",), "»"),
        **dict.fromkeys(("Compensated",), "↩"),
        **dict.fromkeys(("Paused",), "="),
        **dict.fromkeys(("Warning",), "!"),
        **dict.fromkeys(("Pending", "NotReached"), "○"),
    },
    branch="├─ ",
    last="└─ ",
    pipe="│  ",
    ellipsis="…",
    dash="-",
    bars="░▒█·",
)
"""The symbols for terminals with Unicode."""

ASCII = Glyphs(
    icons={
        **dict.fromkeys(("Succeeded", "Completed", "OK"), "+"),
        **dict.fromkeys(("Failed", "TimedOut"), "x"),
        **dict.fromkeys(("Cancelled", "Terminated", "Stopped", "CancelRequested"), "/"),
        **dict.fromkeys(("Running", "ContinuedAsNew"), "*"),
        **dict.fromkeys(("Scheduled", "Waiting"), "."),
        **dict.fromkeys(("BackingOff", "CircuitOpen"), "~"),
        **dict.fromkeys(("Skipped",), ">"),
        **dict.fromkeys(("Compensated",), "<"),
        **dict.fromkeys(("Paused",), "="),
        **dict.fromkeys(("Warning",), "!"),
        **dict.fromkeys(("Pending", "NotReached"), "o"),
    },
    branch="|- ",
    last="`- ",
    pipe="|  ",
    ellipsis="...",
    dash="-",
    bars="-=#.",
)
"""The symbols for all other terminals."""
