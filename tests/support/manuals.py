"""The documentation as tests read it: its pages, the manifests and links in them, and the manifests under examples/."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from perdure.api.labels import API_VERSION

REPOSITORY = Path(__file__).resolve().parents[2]
NOT_YET = "<!-- not yet -->"
"""Stands in the line before a block that shows what this version does not run yet."""

Json = dict[str, Any]

_FENCE = re.compile(
    r"^(?P<ticks>`{3,})(?P<language>[\w-]*)[^\n]*\n(?P<text>.*?)^(?P=ticks) *$", re.DOTALL | re.MULTILINE
)
_INLINE_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\((?P<target>[^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of YAML with manifests of Perdure."""

    page: Path
    line: int
    text: str
    not_yet: bool

    def __str__(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.line}"

    def manifests(self) -> list[Json]:
        """All objects of the block, others' included."""
        return [manifest for manifest in yaml.safe_load_all(self.text) if manifest]

    def ours(self) -> list[Json]:
        return [manifest for manifest in self.manifests() if manifest.get("apiVersion") == API_VERSION]


def pages() -> list[Path]:
    return [
        REPOSITORY / "README.md",
        REPOSITORY / "examples" / "README.md",
        *sorted((REPOSITORY / "examples").glob("*/README.md")),
        *sorted((REPOSITORY / "docs").glob("**/*.md")),
    ]


def blocks_in(page: Path, text: str) -> Iterator[Block]:
    for match in _FENCE.finditer(text):
        if match["language"] == "yaml" and API_VERSION in match["text"]:
            before = text[: match.start()].rstrip().rpartition("\n")[2].strip()
            yield Block(page, text.count("\n", 0, match.start()) + 1, match["text"], before == NOT_YET)


def blocks() -> list[Block]:
    return [block for page in pages() for block in blocks_in(page, page.read_text(encoding="utf-8"))]


def links(text: str) -> list[str]:
    """Targets of links, without text in code that looks like links and without external targets."""
    prose = _INLINE_CODE.sub("", _FENCE.sub("", text))
    return [target for target in _LINK.findall(prose) if not re.match(r"[a-z]+:|#", target)]


def example_folders() -> list[Path]:
    """Folders for `kubectl apply -k`."""
    return sorted(file.parent for file in (REPOSITORY / "examples").rglob("kustomization.yaml"))


def example_files() -> list[Path]:
    """Files for `kubectl apply -f`."""
    files = sorted((REPOSITORY / "examples").rglob("*.yaml"))
    return [
        file
        for file in files
        if file.name not in {"kustomization.yaml", "values.yaml"}  # for kustomize and for helm
        and file.parent.name != "scenarios"
        and "node_modules" not in file.parts
    ]
