"""Find phrases that read as translated, in documentation and in Python strings, docstrings and comments.

`make lint` runs this. Each phrase has the plain one to use instead. A line that must keep a phrase, such as a quotation, ends
with a comment `wordlist: <why>`.
"""

import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

CLEAN: Final = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Dockerfile",
    "Makefile",
    "README.md",
    "charts",
    "docs",
    "examples",
    "hack",
    "operator",
    "packages",
)
"""Files and folders without any of the phrases. Add a folder once it is rewritten."""

OPEN: Final = {
    "hack/wordlist.py": "contains the phrases",
}
"""Files in these folders that still have some of the phrases, and why."""

INSTEAD: Final = {
    r"\banew\b": "again, from scratch, re-create",
    r"\bat once\b": "immediately, or at the same time",
    r"\bby hand\b": "manually",
    r"\bin the way\b": "blocks, prevents",
    r"\bmend(?:s|ed|ing)?\b": "fix, repair",
    r"\bheed(?:s|ed|ing)?\b": "honor, take into account",
    r"\bobey(?:s|ed|ing)?\b": "honor, process",
    r"\blets? go of\b|\blet_go\b": "release, remove the finalizer",
    r"\bwhat (?:becomes|became|comes|came) of\b": "result, outcome, what happens to",
    r"\b(?:is|are|was|were) told\b|\btells? of\b": "report, show, record",
    r"\bgo(?:es)? on\b(?! (?:a|the)\b)": "continue, resume",
    r"\bsomebody\b|\bwhoever\b": "someone, another client",
    r"\btried again\b": "retried",
    r"\bhow it stands\b|\bwhere (?:a|the) run stands\b": "status, phase",
    r"\bis no (?:YAML|JSON|name|time|duration)\b": "is not valid …",
    r"\bwhat is to know\b|\bwhat there is\b": "details, or name the thing",
    r"\b(?:is|are) to be\b": "must",
    r"\bto be gone\b": "pending deletion, terminating",
    r"\bso many\b": "that number of",
    r"\bcut off\b": "truncated, disconnected",
    r"\bas far as is known\b": "if known",
    r"\bfrom [01] on\b": "the first is …",
    r"\btakes? (?:it|them|one) away\b": "remove",
    r"\bhand(?:s|ed)? (?:it |them )?on\b": "pass, pass on",
    r"\bto do without\b": "name what is not needed",
    r"\bcomes? to an end\b": "end",
    r"\bless deep\b": "reduce the nesting",
    r"\bstands? twice\b": "occurs twice, is set twice",
}
"""Phrases, as regular expressions, and what to write instead (design/english.md)."""

_PATTERNS: Final = [(re.compile(phrase, re.IGNORECASE), instead) for phrase, instead in INSTEAD.items()]
_TEXT: Final = {".md", ".yaml", ".yml", ".tpl", ".txt", ".sh", ".json"}
_EXCEPTION: Final = "wordlist:"


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of prose in a file with their numbers: all lines of a text file; strings and comments of Python."""
    source = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(source.splitlines(), start=1)
        return
    lines = source.splitlines()
    excepted = {number for number, line in enumerate(lines, start=1) if _EXCEPTION in line}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.lineno not in excepted:
            for offset, line in enumerate(node.value.splitlines()):
                yield node.lineno + offset, line
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def findings(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the phrase and its replacement for each phrase in a file."""
    for number, line in sorted(set(texts(path))):
        if _EXCEPTION in line:
            continue
        for pattern, instead in _PATTERNS:
            found = pattern.search(line)
            if found is not None:
                yield number, found.group(), instead


def files(names: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files to check in files and folders."""
    for name in names:
        path = ROOT / name
        for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if each.relative_to(ROOT).as_posix() in OPEN:
                continue
            if each.is_file() and (each.suffix in _TEXT | {".py"} or each.name in {"Makefile", "Dockerfile"}):
                yield each


def main(arguments: list[str]) -> int:
    """Check the clean folders, or the files and folders in the arguments.

    Returns:
        The exit code: 0, or 1 if a phrase is found.
    """
    count = 0
    for path in files(tuple(arguments) or CLEAN):
        for number, phrase, instead in findings(path):
            count += 1
            sys.stderr.write(f"{path.relative_to(ROOT)}:{number}: `{phrase}`: write {instead}\n")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
