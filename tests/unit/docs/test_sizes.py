"""The report of sizes names long files, and short ones that a single file imports."""

import runpy
from pathlib import Path

import pytest

_SCRIPT = runpy.run_path(str(Path(__file__).resolve().parents[3] / "hack/sizes.py"))


def report(folder: Path, files: dict[str, str]) -> list[str]:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return list(_SCRIPT["findings"](folder))


def test_a_file_above_900_lines_is_reported(tmp_path: Path) -> None:
    assert report(tmp_path, {"p/long.py": "x = 1\n" * 901, "p/fits.py": "x = 1\n" * 900}) == [
        "p/long.py: 901 lines: two ideas?"
    ]


@pytest.mark.parametrize(
    "statement",
    ["import p.short", "from p import short", "from p.short import x", "from . import short", "from .short import x"],
)
def test_a_short_file_with_one_importer_is_reported(tmp_path: Path, statement: str) -> None:
    files = {"p/__init__.py": "", "p/short.py": "x = 1\n" * 39, "p/user.py": f"{statement}\n"}
    assert report(tmp_path, files) == ["p/short.py: 39 lines, imported only by p/user.py: a part of it?"]


@pytest.mark.parametrize(
    "files",
    [
        {"p/short.py": "x = 1\n", "p/a.py": "import p.short\n", "p/b.py": "import p.short\n"},
        {"p/short.py": "x = 1\n"},
        {"p/forty.py": "x = 1\n" * 40, "p/a.py": "import p.forty\n"},
        {"p/q/__init__.py": "x = 1\n", "p/a.py": "import p.q\n"},
        {"p/__main__.py": "x = 1\n", "p/a.py": "import p.__main__\n"},
    ],
    ids=["two importers", "no importer", "40 lines", "a package", "an entry point"],
)
def test_other_files_are_not_reported(tmp_path: Path, files: dict[str, str]) -> None:
    assert report(tmp_path, files) == []


def test_a_parent_package_is_found_from_a_relative_import(tmp_path: Path) -> None:
    files = {"p/short.py": "x = 1\n", "p/q/__init__.py": "", "p/q/user.py": "from ..short import x\n"}
    assert report(tmp_path, files) == ["p/short.py: 1 lines, imported only by p/q/user.py: a part of it?"]
