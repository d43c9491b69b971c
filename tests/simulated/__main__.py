"""Run seeds of the simulation, or replay one: `python -m simulated --help`, through `make simulate`.

Sets of strings are ordered by a hash that differs between processes; so this starts itself again with a fixed one.
"""

import argparse
import logging
import os
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import structlog

from simulated.scenarios.scenarios import SCENARIOS
from simulated.world import Result, Setting, simulate


def main() -> int:
    """Run the simulations selected by the arguments, and return the number of failed seeds, at most 100."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable, [sys.executable, "-m", "simulated", *sys.argv[1:]], {**os.environ, "PYTHONHASHSEED": "0"}
        )
    parser = argparse.ArgumentParser(
        prog="simulated", description="Run the operator in virtual time, over an API server in memory."
    )
    parser.add_argument(
        "--scenario", nargs="+", choices=sorted(SCENARIOS), default=["mixed"], help="one after the other"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--operators", type=int, default=1, help="how many run at once")
    parser.add_argument("--fleet", action="store_true", help="they share the work")
    parser.add_argument("--faults", type=float, default=0.05, help="share of requests that fail")
    parser.add_argument("--kills", type=int, default=4, help="how often an operator is killed, frozen or cut off")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes share the seeds")
    parser.add_argument("--mixed", action="store_true", help="operators are replaced by older and newer ones")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first seed that fails")
    parser.add_argument("--trace", metavar="TEXT", help="print the timeline of what mentions TEXT; '' for all of it")
    parser.add_argument("--digest", action="store_true", help="print only what is the same whenever a seed is run")
    options = parser.parse_args()
    level = logging.INFO if options.trace is not None else logging.CRITICAL
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level), cache_logger_on_first_use=True)
    failed = 0
    for scenario in options.scenario:
        failed += _play(scenario, options)
        if failed and options.until_failure:
            break
    return min(failed, 100)


def _play(scenario: str, options: argparse.Namespace) -> int:
    """Run the seeds of a scenario, print their outcomes, and return how many failed."""
    began, seeds, failed, runs, virtual = time.monotonic(), 0, 0, 0, 0.0
    for setting, result in _results(scenario, options):
        seeds += 1
        runs += result.runs
        virtual += result.seconds
        if result.violations:
            failed += 1
            _show(scenario, setting, result)
            if options.until_failure:
                break
        elif options.seeds == 1 or options.digest:
            print(
                f"seed {setting.seed}: {result.runs} runs, {result.pods} pods, {result.writes} writes in "
                f"{result.seconds:.0f} s, digest {result.digest}"
            )
    if options.digest:
        return failed
    took = time.monotonic() - began
    print(
        f"{scenario}: {seeds} seeds, {failed} failed; {took:.1f} s for {runs} runs in {virtual:.0f} s of "
        f"virtual time: {seeds / took:.2f} seeds and {runs / took:.1f} runs per second",
        flush=True,
    )
    return failed


def _results(scenario: str, options: argparse.Namespace) -> Iterator[tuple[Setting, Result]]:
    """Yield the result of each seed in order, for any number of processes."""
    seeds = range(options.seed, options.seed + options.seeds)
    common = {name: getattr(options, name) for name in ("operators", "fleet", "faults", "kills", "mixed")}
    settings = [Setting(seed=seed, **common) for seed in seeds]
    one = partial(_one, scenario, wanted=options.trace)
    if options.jobs == 1:
        yield from zip(settings, map(one, settings), strict=True)
        return
    with ProcessPoolExecutor(options.jobs) as pool:
        try:
            yield from zip(settings, pool.map(one, settings), strict=True)
        finally:
            pool.shutdown(cancel_futures=True)


def _one(scenario: str, setting: Setting, wanted: str | None) -> Result:
    def trace(at: float, line: str, about: str) -> None:
        if wanted is not None and (wanted in line or wanted in about):
            print(f"{at:9.3f} {line}")

    try:
        return simulate(SCENARIOS[scenario], setting, trace if wanted is not None else None)
    except Exception:  # noqa: BLE001 - one seed must not end the others
        traceback.print_exc()
        return Result(violations=["the scenario has failed"], seconds=0, runs=0, pods=0, writes=0, digest="")


def _show(scenario: str, setting: Setting, result: Result) -> None:
    print(f"seed {setting.seed} of {scenario} has failed:", *result.violations, sep="\n  ", flush=True)
    replay = f"--scenario {scenario} --seed {setting.seed} --operators {setting.operators}{' --fleet' * setting.fleet}"
    replay += " --mixed" * setting.mixed
    print(
        f"  replay: make simulate ARGS='{replay} --faults {setting.faults} --kills {setting.kills} --trace NAME'",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
