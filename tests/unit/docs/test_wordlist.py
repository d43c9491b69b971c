"""The word list finds phrases in prose but not in code."""

import runpy
from pathlib import Path

import pytest

_SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[3] / "hack/wordlist.py"))


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("page.md", "The run goes on.\n", [(1, "goes on")]),
        ("page.md", "The run goes on a long trip.\n", []),
        ("page.md", "Quoted: goes on <!-- wordlist: a quotation -->\n", []),
        ("code.py", '"""Make it anew."""\n', [(1, "anew")]),
        ("code.py", '"""Make it.\n\nThen mend it.\n"""\n', [(3, "mend")]),
        ("code.py", "heed = 1  # obey\n", [(1, "obey")]),
        ("code.py", 'heed = "at once"  # wordlist: a fixed phrase\n', []),
        ("values.yaml", "# Whoever may create pods.\n", [(1, "Whoever")]),
        ("code.py", 'told = "move it, or take it away"\n', [(1, "take it away")]),
    ],
)
def test_phrases_are_found_in_prose(tmp_path: Path, name: str, text: str, found: list[tuple[int, str]]) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert [(line, phrase) for line, phrase, _ in _SCRIPT["findings"](path)] == found
