"""The activities of the word count: what runs in the pods. Needs an image with Python and `perdure.activity`."""

from collections import Counter
from typing import Any

from perdure import activity


def split(params: dict[str, Any]) -> list[str]:
    """Split a text into pieces of some lines."""
    lines, each = params["text"].splitlines(), params["linesEach"]
    return ["\n".join(lines[i : i + each]) for i in range(0, len(lines), each)]


def count(part: str) -> dict[str, int]:
    """Count the words of a piece."""
    return dict(Counter(part.lower().split()))


def merge(params: dict[str, Any]) -> list[dict[str, Any]]:
    """Combine the counts; returns the most frequent words."""
    total: Counter[str] = Counter()
    for counts in params["counts"]:
        total.update(counts)
    found = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    return [{"word": word, "count": number} for word, number in found[: params["top"]]]


if __name__ == "__main__":
    activity.main({"split": split, "count": count, "merge": merge})
