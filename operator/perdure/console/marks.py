"""An icon and a tone for each status. The word is always next to them, so colors are not needed."""

from dataclasses import dataclass
from typing import Final

from perdure.view.glyphs import UNICODE
from perdure.view.page import style_of

_TONES: Final = {
    "green": "good",
    "bold red": "bad",
    "magenta": "stopped",
    "cyan": "running",
    "blue": "waiting",
    "yellow": "warning",
}
"""The tones by the style in the terminal."""

_OTHERS: Final = {
    "Ready": ("✓", "good"),
    "Not ready": ("✗", "bad"),
    "Closed": ("✓", "good"),
    "Open": ("✗", "bad"),
    "HalfOpen": ("↻", "warning"),
    "Expired": ("✗", "bad"),
    "Renewed": ("✓", "good"),
    "Full": ("!", "warning"),
    "Free": ("✓", "good"),
    "Not re-driven": ("○", "idle"),
    "Deleted": ("○", "idle"),
    "Accepted": ("✓", "good"),
    "Refused": ("✗", "bad"),
}
"""Words that the terminal does not show with an icon."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The icon and the tone next to a word."""

    icon: str
    tone: str
    """A class of the style sheet."""


def mark(word: str) -> Mark:
    """Return the mark of a status."""
    if word in _OTHERS:
        return Mark(*_OTHERS[word])
    return Mark(UNICODE.icons.get(word, "·"), _TONES.get(style_of(word), "idle"))
