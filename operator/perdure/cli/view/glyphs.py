"""The characters beside letters."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters beside letters."""

    icons: Mapping[str, str]
    """Icons by word; each is one column wide."""
    branch: str
    last: str
    pipe: str
    ellipsis: str
    dash: str
    """Shown for a missing value."""
    bars: str
    """Of a timeline: waiting, starting, running, and the time around them."""


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
"""For terminals that know Unicode."""

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
"""For all others."""
