"""Report files of the operator whose size is a smell: very long ones, and short ones that only one other file imports.

`make lint` prints the report and never fails because of it: a size only says where to look. Above 900 lines, look for two ideas
in the file. Below 40 lines with one importer, look for the file that it belongs to (CONTRIBUTING.md).
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SOURCES: Final = ROOT / "operator"
"""Root of the packages."""

LONG: Final = 900
SHORT: Final = 40


def module_name(file: Path, sources: Path) -> str:
    """Name the module of a file, or the package of an `__init__.py`."""
    parts = file.relative_to(sources).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_names(tree: ast.Module, package: str) -> Iterator[str]:
    """Yield the dotted names that a module in a package imports: of modules, and of definitions in them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: 1 - node.level or None] if node.level else []
            origin = ".".join([*parents, *([node.module] if node.module else [])])
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def importers(files: list[Path], sources: Path) -> dict[Path, set[Path]]:
    """Find the files that import each file."""
    modules = {module_name(file, sources): file for file in files}
    found: dict[Path, set[Path]] = defaultdict(set)
    for file in files:
        package = module_name(file, sources)
        if file.name != "__init__.py":
            package = package.rpartition(".")[0]
        for name in imported_names(ast.parse(file.read_text(encoding="utf-8")), package):
            if name in modules and modules[name] != file:
                found[modules[name]].add(file)
    return found


def findings(sources: Path) -> Iterator[str]:
    """Yield a line for each file of the packages below a folder whose size is a smell, the longest file first."""
    files = sorted(sources.rglob("*.py"))
    lengths = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in files}
    by = importers(files, sources)
    for file in sorted(files, key=lambda each: (-lengths[each], each)):
        path = file.relative_to(sources)
        if lengths[file] > LONG:
            yield f"{path}: {lengths[file]} lines: two ideas?"
        elif lengths[file] < SHORT and len(by[file]) == 1 and not file.name.startswith("__"):
            (importer,) = by[file]
            yield f"{path}: {lengths[file]} lines, imported only by {importer.relative_to(sources)}: a part of it?"


def main() -> None:
    """Print the report."""
    for line in findings(SOURCES):
        sys.stdout.write(f"{SOURCES.name}/{line}\n")


if __name__ == "__main__":
    main()
