"""The five pipelines in seven tools: which files, how long, and what is wrong in them when a type is.

A line counts if it has code: no blank lines, comments, docstrings, or imports, and nothing from `if __name__ == "__main__":` on.
Programs are formatted by ruff with lines of 120 characters, so that nobody saves lines by long ones.
"""

import ast
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
PIPELINES: Final = ("nightly", "sweep", "approval", "files", "trip")
PACKAGES: Final = {
    "prefect": ("prefect==3.9.1",),
    "airflow": ("apache-airflow==3.3.2",),
    "dagster": ("dagster==1.13.29",),
    "metaflow": ("metaflow==2.19.39",),
    "flyte": ("flyte==2.12.1",),
    "hera": ("hera[yaml]==7.1.0",),
}
"""What each tool is installed from. Perdure is this repository."""
TOOLS: Final = ("perdure", *PACKAGES)


def programs(tool: str, pipeline: str) -> list[Path]:
    """Return the programs of a pipeline: one, or more if the tool needs them."""
    return sorted((HERE / tool).glob(f"{pipeline}*.py"))


def count_lines(program: Path) -> int:
    """Return how many lines of a program count."""
    source = program.read_text(encoding="utf-8")
    tree = ast.parse(source)
    counted: set[int] = set()
    for statement in tree.body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "__name__ == '__main__'":
            continue
        counted |= _lines(statement)
    texts = source.splitlines()
    return sum(1 for number in counted if (text := texts[number - 1].strip()) and not text.startswith("#"))


def _lines(statement: ast.stmt) -> set[int]:
    """Return the lines of a statement without the imports and docstrings in it."""
    first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", []))])
    found = set(range(first, (statement.end_lineno or first) + 1))
    for node in ast.walk(statement):
        literal = (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        )
        if literal or isinstance(node, ast.Import | ast.ImportFrom):
            found -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


Mistake = tuple[str, str, str]
"""The pipeline, what is replaced, and by what; nothing to replace: it is added at the end."""

MISTAKES: Final = (
    "an argument of the wrong type",
    "an argument that does not exist",
    "a result of the wrong type",
    "a start",
)
PLANTED: Final[dict[str, tuple[Mistake, ...]]] = {
    "perdure": (
        ("trip", "book(what, trip)\n            saga", "book(what, 7)\n            saga"),
        ("trip", "book(what, trip)\n            saga", "book(what, trip, seats=2)\n            saga"),
        ("files", "report(counts, files)", "report(files, files)"),
        ("sweep", "", 'sweep.run_local("fast")'),
    ),
    "prefect": (
        ("trip", "[book(what, trip)", "[book(what, 7)"),
        ("trip", "[book(what, trip)", "[book(what, trip, seats=2)"),
        (
            "files",
            "report([future.result() for future in futures if future.state.is_completed()], files)",
            "report(files, files)",
        ),
        ("sweep", "", 'sweep("fast")'),
    ),
    "airflow": (
        ("trip", "(what) for", "(7) for"),
        ("trip", "(what) for", "(what, seats=2) for"),
        ("files", "report(count.expand(file=files), files)", "report(files, files)"),
        ("sweep", "", 'sweep().test(run_conf={"rates": "fast"})'),
    ),
    "dagster": (
        ("trip", "(trip, bookings)", "(7, bookings)"),
        ("trip", "(trip, bookings)", "(trip, bookings, seats=2)"),
        ("files", "report(each.map(count).collect(), files)", "report(files, files)"),
        ("sweep", "", 'job.execute_in_process(input_values={"rates": "fast", "epochs": 2, "target": 0.9})'),
    ),
    "metaflow": (
        ("trip", '["car", "hotel", "flight"]', "[1, 2, 3]"),
        ("trip", "self.trip)", "self.tripp)"),
        ("files", "[each.counted for each in inputs if not each.failed]", "self.files"),
        ("sweep", "", '__import__("metaflow").Runner("sweep.py").run(rates="fast")'),
    ),
    "flyte": (
        ("trip", "book(what, trip)", "book(what, 7)"),
        ("trip", "book(what, trip)", "book(what, trip, seats=2)"),
        (
            "files",
            "report([each for each in counts if not isinstance(each, Exception)], files)",
            "report(files, files)",
        ),
        ("sweep", "", 'flyte.run(sweep, "fast")'),
    ),
    "hera": (
        ("trip", '"what": "flight"', '"what": 7'),
        ("trip", '"what": "flight"', '"seats": 2, "what": "flight"'),
        ("files", '"counts": counts.result', '"counts": files.result'),
        ("sweep", '"target": "0.9"', '"target": "fast"'),
    ),
}
"""For each tool, a program with each of `MISTAKES`."""


def plant(folder: Path, tool: str) -> list[tuple[Path, Path]]:
    """Write, for each of `MISTAKES`, a program without and one with it to a folder."""
    written = []
    for number, (pipeline, right, wrong) in enumerate(PLANTED[tool]):
        source = (HERE / tool / f"{pipeline}.py").read_text(encoding="utf-8")
        assert right in source, f"{tool}: {right!r} is not in {pipeline}"
        planted = source.replace(right, wrong, 1) if right else f"{source}\n\n{wrong}\n"
        pair = folder / f"right_{number}.py", folder / f"wrong_{number}.py"
        for file, text in zip(pair, (source, planted), strict=True):
            file.write_text(text, encoding="utf-8")
        written.append(pair)
    return written
