"""How fast Perdure is on this machine: `make bench`.

Needs a cluster with Perdure that leaves the namespaces `own-*` alone (hack/benchmark.py brings one up). Everything is measured
with one operator in a process of this machine. Figures decide nothing: compare those of one run.
"""

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

from bench.definitions import measure_podless, measure_pods
from bench.etl import measure_etl
from bench.fleets import Stored, measure_fleet
from bench.hello import measure_growth, measure_hello
from bench.members import measure_members
from bench.patches import measure_patches
from bench.results import Result, as_json, machine, table
from bench.revisions import measure_revisions
from bench.schedules import herd
from bench.sleepers import measure_sleepers
from bench.writes import measure_writes
from support.cluster.namespace import IMAGE, find_cluster
from support.sdk.server import Operator, serving

SCHEDULES = 100
PARTS = ("hello", "growth", "writes", "podless", "pods", "schedules")
LONG_PARTS = ("etl", "patches", "members", "fleet", "definitions", "sleepers")
"""They take minutes by themselves, and are only measured by request. The last one leaves much for the API server to delete."""


def main() -> None:
    """Measure all, or some of it, and print the results."""
    parser = argparse.ArgumentParser(
        prog="bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=(*PARTS, *LONG_PARTS),
        help=f"measure this; can be repeated (default: all but {', '.join(LONG_PARTS)})",
    )
    parser.add_argument("--temporal", metavar="HOST:PORT[/NAMESPACE]", help="a Temporal server to compare with")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the results there as JSON, too")
    parser.add_argument(
        "--finished",
        metavar="NUMBER",
        type=int,
        default=100_000,
        help="finished runs of `fleet` (default: %(default)s)",
    )
    parser.add_argument(
        "--open",
        metavar="NUMBER",
        type=int,
        default=10_000,
        help="open runs of `fleet`, `definitions`, and `sleepers` (default: %(default)s)",
    )
    parser.add_argument(
        "--bytes",
        metavar="NUMBER",
        type=int,
        default=0,
        help="input of each finished run of `fleet` (default: %(default)s)",
    )
    options = parser.parse_args()
    stored = Stored(options.finished, options.open, options.bytes)
    chosen = tuple(part for part in (*PARTS, *LONG_PARTS) if part in (options.only or PARTS))
    cluster = find_cluster()
    about = machine(cluster)
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(cluster, Path(folder) / "log", PERDURE_LOG_LEVEL="warning", PERDURE_SIDECAR_IMAGE=IMAGE) as operator,
    ):
        results = asyncio.run(_measure(operator, chosen, options.temporal, stored))
    print(*(f"{key}: {value}" for key, value in about.items()), f"load after: {os.getloadavg()[0]:.1f}", sep="\n")
    print(table(results))
    if options.json is not None:
        options.json.write_text(as_json(about, results), encoding="utf-8")


async def _measure(operator: Operator, parts: tuple[str, ...], temporal: str | None, stored: Stored) -> list[Result]:
    results: list[Result] = []
    for part in parts:
        print(f"measuring {part} …", file=sys.stderr)
        match part:
            case "hello":
                results += await measure_hello(operator, temporal)
            case "growth":
                results += await measure_growth(operator)
            case "podless":
                results += await measure_podless(operator)
            case "writes":
                results += await measure_writes(operator)
            case "pods":
                results += measure_pods(operator)
            case "etl":
                results += measure_etl(operator)
            case "patches":
                results += await measure_patches(operator)
            case "members":
                results += await measure_members(operator)
            case "fleet":
                results += await measure_fleet(operator, stored)
            case "definitions":
                results += await measure_revisions(operator, stored.sleeping)
            case "sleepers":
                results += await measure_sleepers(operator, stored.sleeping, stored.sleeping // 10)
            case _:
                results += await _measure_schedules(operator)
    return results


async def _measure_schedules(operator: Operator) -> list[Result]:
    found = await herd(operator.cluster, SCHEDULES)
    what = f"{SCHEDULES} schedules due in the same second, until the last run has started"
    return [
        Result(what, "s", found.last, "raw creates", found.raw),
        Result(what, "s", found.last, "CronJobs", found.cron_jobs),
        Result("lateness of an action, most", "ms", 1000 * max(found.late)),
    ]


if __name__ == "__main__":
    main()
