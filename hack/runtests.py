"""`make test`: every test that decides, from nothing. `make test-all` (``--all``): the benchmarks too.

What needs no cluster comes first, so that a mistake shows within seconds. The cluster has a name of its own and is removed at the
end, unless KEEP=1 asks for it to stay. With CLUSTER=existing the tests run against the cluster that KUBECONFIG names (and IMAGE,
see hack/deploy.py).
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from cluster import lifecycle
from cluster.console import say
from cluster.errors import ClusterError
from cluster.paths import REPOSITORY, Cache
from cluster.tools import DEFAULT_TOOLS, ensure_tools
from deploy import Target, existing_cluster, install, kind_cluster

NAME = os.environ.get("NAME", "perdure-test")
LEFT_ALONE = "excludeNamespaces={own-*}"
"""Tests start operators of their own in these namespaces (`OWN` in tests/kube.py)."""
THOROUGH = {"PERDURE_LONGER": "4", "PERDURE_DIFFERENTIAL_REQUESTS": "50000", "PERDURE_SIMULATION_SEEDS": "100"}
"""How `make test-all` tries faults for longer, unless the environment says otherwise."""


def main() -> int:
    """Run the tests; return the exit status."""
    began = time.monotonic()
    benchmarks = "--all" in sys.argv[1:]
    cache = Cache.from_environment(os.environ)
    try:
        ensure_tools(cache, DEFAULT_TOOLS)  # the tests of the chart need helm
        status = pytest("not cluster", os.environ, processes=2, benchmarks=benchmarks)
        status = status or on_some_cluster(cache, benchmarks=benchmarks)
    except ClusterError as error:
        say(f"Error: {error}")
        status = 1
    say(f"All of it took {time.monotonic() - began:.0f} s.")
    return status


def on_some_cluster(cache: Cache, *, benchmarks: bool) -> int:
    """Bring up a cluster, or take the one that is there, and run the tests that need one."""
    if os.environ.get("CLUSTER") == "existing":
        target = existing_cluster(cache, os.environ.get("IMAGE"))
        install(cache, target, LEFT_ALONE)
        return on_cluster(target, benchmarks=benchmarks)
    try:
        target = kind_cluster(cache, NAME, audit=True)
        install(cache, target, LEFT_ALONE)
        return on_cluster(target, benchmarks=benchmarks)
    finally:
        if not os.environ.get("KEEP"):
            lifecycle.down(cache, [NAME])


def on_cluster(target: Target, *, benchmarks: bool) -> int:
    """Run the tests that need a cluster; those that change the installation come last, one after the other."""
    environment = {**target.environment, "PERDURE_TEST_IMAGE": target.image, "PERDURE_TEST_CLUSTER": target.name or ""}
    together = pytest("cluster and not alone", environment, processes=3, benchmarks=benchmarks)
    alone = pytest("cluster and alone", environment, benchmarks=benchmarks)
    return together or alone


def pytest(which: str, environment: Mapping[str, str], *, processes: int = 0, benchmarks: bool = False) -> int:
    """Run the tests whose markers match ``which``, with the project's settings; ``processes`` at a time, or in this one."""
    markers = which if benchmarks else f"{which} and not bench"
    given = {**THOROUGH, **environment} if benchmarks else dict(environment)
    command: Sequence[str] = [sys.executable, "-m", "pytest", "--durations=5", "-m", markers, "-n", str(processes)]
    return subprocess.run(command, env=given, cwd=REPOSITORY, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
