"""The work of the five pipelines: plain Python, the same in every tool, which only decides when, where, and how often it runs.

Each call appends a line to the file in `WORK_LOG`. Calls in `WORK_FAILS`, separated by commas, fail; those in `WORK_HANGS` do
not end, so that a trial can kill them.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path


def _call(name: str) -> None:
    """Note a call, such as `extract eu`, and let it fail or hang if the environment says so."""
    log = os.environ.get("WORK_LOG")
    if log:
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")
    if name in os.environ.get("WORK_HANGS", "").split(","):
        time.sleep(600)
    if name in os.environ.get("WORK_FAILS", "").split(","):
        raise ValueError(f"cannot {name}")


@dataclass
class Part:
    """The rows of a source."""

    source: str
    rows: list[int]


def extract(source: str, day: date) -> Part:
    """Read the rows of a source of a day."""
    _call(f"extract {source} {day}")
    return Part(source, [day.day, day.month, len(source)])


def load(parts: Sequence[Part]) -> int:
    """Write all rows, and return their sum."""
    _call("load")
    return sum(sum(part.rows) for part in parts)


@dataclass
class Trial:
    """A learning rate, and the score that it has reached."""

    rate: float
    epochs: int
    score: float


def train(rate: float, epochs: int) -> Trial:
    """Train and measure a model."""
    _call(f"train {rate} {epochs}")
    return Trial(rate, epochs, 1 - (1 - min(rate, 1 / rate) / 2) ** epochs)


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """Return trials, the best first."""
    return sorted(trials, key=lambda trial: trial.score, reverse=True)


def better_half(trials: Sequence[Trial]) -> list[float]:
    """Return the rates of the better half of trials."""
    return [trial.rate for trial in ranked(trials)[: (len(trials) + 1) // 2]]


def build(version: str) -> str:
    """Build a release, and return its image."""
    _call(f"build {version}")
    return f"image:{version}"


def publish(image: str) -> str:
    """Publish an image."""
    _call(f"publish {image}")
    return f"published {image}"


def withdraw(image: str) -> str:
    """Remove an image that nobody has approved in time, or that was rejected."""
    _call(f"withdraw {image}")
    return f"withdrawn {image}"


@dataclass
class Count:
    """The number of words in a file."""

    file: str
    words: int


@dataclass
class Report:
    """The words of all files, and the files that could not be read."""

    words: int
    unreadable: list[str]


def list_files(folder: str) -> list[str]:
    """Return the names of the files in a folder."""
    _call(f"list {folder}")
    return [f"{folder}/{name}" for name in ("a.txt", "b.txt", "broken.txt", "c.txt")]


def count(file: str) -> Count:
    """Count the words of a file; some cannot be read."""
    _call(f"count {file}")
    if "broken" in file:
        raise ValueError(f"{file} is not text")
    return Count(file, len(file))


def report(counts: Sequence[Count], files: Sequence[str]) -> Report:
    """Add up the counts; files without one are reported."""
    _call("report")
    return Report(sum(each.words for each in counts), sorted(set(files) - {each.file for each in counts}))


def book(what: str, trip: str) -> str:
    """Book a part of a trip, and return the number of the booking."""
    _call(f"book {what}")
    return f"{what}-of-{trip}"


def cancel(booking: str) -> None:
    """Cancel a booking."""
    _call(f"cancel {booking}")
