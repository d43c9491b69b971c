"""The results of a benchmark, as a table and as JSON."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from support.cluster.namespace import Cluster


@dataclass(frozen=True)
class Result:
    """One figure, and a reference figure measured in the same way in the same run."""

    what: str
    unit: str
    figure: float
    other: str = ""
    """What it is compared with."""
    other_figure: float | None = None

    @property
    def ratio(self) -> float | None:
        """The ratio of the figure to the reference."""
        return self.figure / self.other_figure if self.other_figure else None


def machine(cluster: Cluster) -> dict[str, str]:
    """Where the figures come from. The load shows whether the machine was idle."""
    model = next(
        line for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if "model name" in line
    )
    (node,) = {node["status"]["nodeInfo"]["kubeletVersion"] for node in cluster.list("nodes")}
    return {
        "processor": f"{os.cpu_count()} x {model.partition(':')[2].strip()}",
        "load before": f"{os.getloadavg()[0]:.1f}",
        "Kubernetes": node,
        "Python": platform.python_version(),
        "temporalio": version("temporalio"),
    }


def table(results: Sequence[Result]) -> str:
    """The results in columns."""
    head = ("what", "Perdure", "compared with", "its figure", "ratio")
    rows = [head, *map(_cells, results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _cells(result: Result) -> tuple[str, ...]:
    figure = f"{_number(result.figure)} {result.unit}"
    if result.other_figure is None:
        return result.what, figure, result.other, "", ""
    ratio = "" if result.ratio is None else f"{result.ratio:.2f}"
    return result.what, figure, result.other, f"{_number(result.other_figure)} {result.unit}", ratio


def _number(figure: float) -> str:
    return f"{figure:.0f}" if figure >= 100 else f"{figure:.2f}"


def as_json(about: dict[str, str], results: Sequence[Result]) -> str:
    """All of it for programs."""
    rows = [{**asdict(result), "ratio": result.ratio} for result in results]
    return json.dumps({"machine": about, "results": rows}, indent=2)
