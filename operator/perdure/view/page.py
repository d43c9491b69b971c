"""The settings of the output: width, symbols, colors, the time, and the form of commands."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from rich.text import Text

from perdure.view import text

_STATUSES = (
    (("Succeeded", "Completed", "OK"), "✓", "+", "green"),
    (("Failed", "TimedOut"), "✗", "x", "bold red"),
    (("Cancelled", "Terminated", "Stopped", "CancelRequested"), "⊘", "/", "magenta"),
    (("Running", "ContinuedAsNew"), "●", "*", "cyan"),
    (("Scheduled", "Waiting"), "◔", ".", "blue"),
    (("BackingOff", "CircuitOpen"), "↻", "~", "yellow"),
    (("Skipped",), "»", ">", "dim"),
    (("Compensated",), "↩", "<", "magenta"),
    (("Paused",), "=", "=", "blue"),
    (("Warning",), "!", "!", "yellow"),
    (("Pending", "NotReached"), "○", "o", "dim"),
)
"""The words of a status, their icons with and without Unicode, and their color."""
_STYLES = {word: style for words, _, _, style in _STATUSES for word in words}


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
    icons={word: icon for words, icon, _, _ in _STATUSES for word in words},
    branch="├─ ",
    last="└─ ",
    pipe="│  ",
    ellipsis="…",
    dash="-",
    bars="░▒█·",
)
"""The symbols for terminals with Unicode."""

ASCII = Glyphs(
    icons={word: icon for words, _, icon, _ in _STATUSES for word in words},
    branch="|- ",
    last="`- ",
    pipe="|  ",
    ellipsis="...",
    dash="-",
    bars="-=#.",
)
"""The symbols for all other terminals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The settings of the output."""

    now: datetime
    width: int = 80
    glyphs: Glyphs = field(default=UNICODE)
    iso: bool = False
    """Whether times are shown as clock times instead of relative to the start or to now."""
    program: str = "perdure"
    """The name of the command: `perdure` or `kubectl perdure`."""
    context: str | None = None
    """The selected context of the kubeconfig; hints contain it, too."""
    brief: bool = False
    """Whether a run with many steps is shown on about one screen: its failed and open steps, and counts of the others."""

    def status(self, word: str) -> Text:
        """Format the icon and the word of a status, in its color."""
        icon = self.glyphs.icons.get(word, "?")
        return Text(f"{icon} {text.one_line(word)}", style=style_of(word))

    def shorten(self, line: str, width: int) -> str:
        """Truncate a line to a width."""
        return text.shorten(line, width, self.glyphs.ellipsis)

    def timestamp(self, time: datetime) -> str:
        """Format a time and its distance from now; times in a history use `since`."""
        if time > self.now:
            return f"{text.iso(time)} (in {text.countdown(time - self.now)})"
        return f"{text.iso(time)} ({text.age(self.now - time)} ago)"

    def relative(self, time: datetime) -> str:
        """Format a time near now in a few words: `in 4s`, `2s ago`, or `at …` if clock times are selected."""
        if self.iso:
            return f"at {text.iso(time)}"
        return f"in {self.remaining(time)}" if time > self.now else f"{text.age(self.now - time)} ago"

    def remaining(self, time: datetime) -> str:
        """Format the time left until a time."""
        return text.countdown(time - self.now)

    def since(self, time: datetime, start: datetime | None) -> str:
        """Format a time in a run: the time since its start, or the clock time."""
        if self.iso or start is None:
            return text.iso(time)
        return f"+{text.duration(time - start)}" if time >= start else f"-{text.duration(start - time)}"

    def kubectl(self, namespace: str | None, *arguments: str) -> str:
        """Return a kubectl command to copy."""
        return self._command("kubectl", namespace, arguments)

    def perdure(self, namespace: str, verb: str, *arguments: str) -> str:
        """Return a command of Perdure to copy."""
        return self._command(f"{self.program} {verb}", namespace, arguments)

    def pollers(self, namespace: str, task_queue: str) -> str:
        """Return a command that shows the pollers of a task queue."""
        return self.perdure(namespace, "task-queue describe", task_queue)

    def endpoint(self, name: str) -> str:
        """Return a command of Temporal's CLI that shows the namespace and task queue of a Nexus endpoint."""
        return f"temporal operator nexus endpoint get {shlex.join(('--name', text.one_line(name)))}"

    def _command(self, program: str, namespace: str | None, arguments: tuple[str, ...]) -> str:
        options = ["--context", self.context] if self.context else []
        options += ["-n", namespace] if namespace else []
        return f"{program} {shlex.join([text.one_line(part) for part in (*options, *arguments)])}"


def style_of(word: str) -> str:
    """Return the color of a status.

    Args:
        word: The status.

    Returns:
        A style of rich.
    """
    return _STYLES.get(word, "")


def elapsed(start: datetime | None, end: datetime | None, now: datetime) -> timedelta | None:
    """Return the total duration of a span, or the duration so far.

    Args:
        start: The start; None if it has not started.
        end: The end; None if it has not ended.
        now: The time.

    Returns:
        The duration, never negative; None if it has not started.
    """
    return None if start is None else max((end or now) - start, timedelta(0))
