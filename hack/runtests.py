"""`make test`: every test that decides, from nothing. `make test-all` (``--all``): longer trials of faults, and the benchmarks.

What needs no cluster runs while one is brought up, and while those tests have it that change it for all others: they mostly
wait. The cluster has a name of its own and is removed at the end, unless KEEP=1 asks for it to stay. With CLUSTER=existing the
tests use the cluster that KUBECONFIG names (and IMAGE, see hack/deploy.py).
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster import lifecycle
from cluster.console import say
from cluster.errors import ClusterError
from cluster.paths import REPOSITORY, Cache
from cluster.tools import DEFAULT_TOOLS, ensure_tools
from deploy import existing_cluster, install, kind_cluster

NAME = os.environ.get("NAME", "perdure-test")
LEFT_ALONE = "excludeNamespaces={own-*}"
"""Tests start operators of their own in these namespaces (`OWN` in tests/kube.py)."""
THOROUGH = {"PERDURE_LONGER": "4", "PERDURE_DIFFERENTIAL_REQUESTS": "50000", "PERDURE_SIMULATION_SEEDS": "100"}
"""How `make test-all` tries faults for longer, unless the environment says otherwise."""


def main() -> int:
    """Run the tests; return the exit status."""
    began = time.monotonic()
    everything = "--all" in sys.argv[1:]
    environment = {**THOROUGH, **os.environ} if everything else dict(os.environ)
    cache = Cache.from_environment(os.environ)
    try:
        ensure_tools(cache, DEFAULT_TOOLS)  # the tests of the chart need helm
        with ThreadPoolExecutor(max_workers=1) as beside, TemporaryDirectory() as folder:
            prepared = beside.submit(prepare, cache, environment, Path(folder) / "alone.log")
            statuses = [pytest("not cluster and not bench", environment, processes=4)]
            environment, alone = prepared.result()
        statuses += [alone, pytest("cluster and not alone and not bench", environment, processes=5)]
        if everything:
            statuses.append(pytest("bench", environment))
        status = max(statuses)
    except ClusterError as error:
        say(f"Error: {error}")
        status = 1
    finally:
        if not (os.environ.get("KEEP") or existing()):
            lifecycle.down(cache, [NAME])
    say(f"All of it took {time.monotonic() - began:.0f} s.")
    return status


def prepare(cache: Cache, environment: Mapping[str, str], log: Path) -> tuple[dict[str, str], int]:
    """Bring up a cluster, or take the one that is there, and run the tests that must have it alone.

    Args:
        cache: Where what is needed for it is kept.
        environment: That of the tests.
        log: Takes the output of the tests, which is shown at their end.

    Returns:
        The environment of tests on the cluster, and the exit status of those that have run.
    """
    target = existing_cluster(cache, os.environ.get("IMAGE")) if existing() else kind_cluster(cache, NAME, audit=True)
    install(cache, target, LEFT_ALONE)
    image, name = target.image, target.name or ""
    there = {**environment, **target.environment, "PERDURE_TEST_IMAGE": image, "PERDURE_TEST_CLUSTER": name}
    status = pytest("cluster and alone and not bench", there, log=log)
    say(log.read_text())
    return there, status


def existing() -> bool:
    """Whether the cluster is not ours."""
    return os.environ.get("CLUSTER") == "existing"


def pytest(which: str, environment: Mapping[str, str], *, processes: int = 0, log: Path | None = None) -> int:
    """Run the tests whose markers match ``which``, with the project's settings; ``processes`` at a time, or in this one.

    Their output goes to ``log``, where one is given.
    """
    parallel = ["-n", str(processes), "--dist=worksteal"]  # the long ones are neighbours
    command = [sys.executable, "-m", "pytest", "--durations=5", "-m", which, *parallel]
    with log.open("wb") if log is not None else nullcontext() as output:
        return subprocess.run(command, env=environment, cwd=REPOSITORY, stdout=output, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
