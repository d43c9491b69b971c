"""Report progress on stderr: one line per stage, and a heartbeat while a stage runs."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

HEARTBEAT_SECONDS = 15.0


def say(line: str) -> None:
    """Print one line for the user."""
    print(line, file=sys.stderr, flush=True)


@dataclass(slots=True)
class Stage:
    """A running stage. Its owner can report progress."""

    title: str
    started: float
    progress: Callable[[], str] = field(default=lambda: "")
    """Called at each heartbeat, for example to report the number of compiled packages."""


@contextmanager
def stage(title: str) -> Iterator[Stage]:
    """Measure the time of a block and print its line, whether it succeeds or fails."""
    current = Stage(title, time.monotonic())
    over = threading.Event()

    def elapsed() -> str:
        return f"{time.monotonic() - current.started:6.1f}s"

    def beat() -> None:
        while not over.wait(HEARTBEAT_SECONDS):
            progress = current.progress()
            say(f"{elapsed()} … {title}{': ' + progress if progress else ''}")

    heart = threading.Thread(target=beat, daemon=True)
    heart.start()
    try:
        yield current
    except BaseException:
        say(f"{elapsed()} ✗ {title}")
        raise
    else:
        say(f"{elapsed()} ✓ {title}")
    finally:
        over.set()
        heart.join()
