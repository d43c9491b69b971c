"""Convert the examples of Argo Workflows or Tekton, and run them on the cluster of KUBECONFIG.

    PYTHONPATH=operator:tests:hack .venv/bin/python -m bench.foreign argo path/to/argo-workflows/examples

Images that only need a shell or Python are replaced by the local one. An example has passed if it ends as its documentation
says: it completes, or it fails if it is meant to. With --convert, nothing is run, and no cluster is needed.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from bench.foreign.examples import SYSTEMS, load
from bench.foreign.expectations import needs
from bench.foreign.trial import Outcome, Trial, prepared
from support.cluster.namespace import find_cluster


def main() -> None:
    """Convert, run, and print the results."""
    parser = argparse.ArgumentParser(
        prog="foreign", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("system", choices=sorted(SYSTEMS))
    parser.add_argument("folder", type=Path, help="the folder with the examples")
    parser.add_argument(
        "--with", action="append", type=Path, default=[], metavar="FILE", dest="more", help="import it, too"
    )
    parser.add_argument("--only", action="append", metavar="FILE", help="run this one; can be repeated (default: all)")
    parser.add_argument("--convert", action="store_true", help="only convert them")
    parser.add_argument("--parallel", type=int, default=6, help="how many run at the same time (default: 6)")
    parser.add_argument("--seconds", type=float, default=240, help="how long one may take (default: 240)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    options = parser.parse_args()
    found = load(options.system, options.folder, options.more)
    examples = [each for each in found if not options.only or each.name in options.only]
    converted = [each for each in examples if not each.gaps]
    sys.stdout.write(f"{len(converted)} of {len(examples)} are converted completely\n")
    sys.stdout.writelines(f"not converted  {each.name}: {gap}\n" for each in examples for gap in each.gaps)
    missing = [Outcome(each.name, None, f"needs {what}") for each in converted if (what := needs(each))]
    if options.convert:
        _print(missing)
        return
    runnable = [each for each in converted if not needs(each)]
    outcomes = [*missing]
    with prepared(find_cluster(), f"examples-of-{options.system}") as namespace:
        trial = Trial(namespace, seconds=options.seconds, parallel=options.parallel)
        sys.stdout.writelines(f"rejected: {each}\n" for each in trial.define(examples))
        for outcome in trial.run(runnable):
            outcomes.append(outcome)
            _print([outcome])
    _summarize(outcomes)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=2), encoding="utf-8")


def _print(outcomes: Iterable[Outcome]) -> None:
    words = {True: "as documented", False: "DIFFERENT", None: "not run"}
    for each in outcomes:
        sys.stdout.write(f"{words[each.same]:<14} {each.name:<70} {each.seconds:6.1f} s  {each.detail}\n")
    sys.stdout.flush()


def _summarize(outcomes: list[Outcome]) -> None:
    sys.stdout.write("\n")
    _print(sorted((each for each in outcomes if not each.same), key=lambda each: (each.same is None, each.name)))
    count = Counter(each.same for each in outcomes)
    sys.stdout.write(f"{count[True]} of {count[True] + count[False]} end as documented, {count[None]} were not run\n")


if __name__ == "__main__":
    main()
