"""`make test`: every test, from nothing. What needs no cluster comes first, so that a mistake shows within seconds.

The cluster is of its own name and is removed at the end, unless KEEP=1 asks for it to stay. With CLUSTER=existing the tests run
against the cluster that KUBECONFIG names (and IMAGE, see hack/deploy.py).
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence

from cluster import lifecycle
from cluster.console import say
from cluster.errors import ClusterError
from cluster.paths import REPOSITORY, Cache
from cluster.tools import DEFAULT_TOOLS, ensure_tools
from deploy import Target, existing_cluster, install, kind_cluster

NAME = os.environ.get("NAME", "perdure-test")


def main() -> int:
    """Run all tests; return the exit status."""
    began = time.monotonic()
    cache = Cache.from_environment(os.environ)
    try:
        ensure_tools(cache, DEFAULT_TOOLS)  # the tests of the chart need helm
    except ClusterError as error:
        say(f"Error: {error}")
        return 1
    status = pytest(["-m", "not cluster", "-n", "2"], os.environ)
    if status:
        return status
    existing = os.environ.get("CLUSTER") == "existing"
    try:
        target = existing_cluster(cache, os.environ.get("IMAGE")) if existing else kind_cluster(cache, NAME, audit=True)
        install(cache, target)
        status = on_cluster(target)
    except ClusterError as error:
        say(f"Error: {error}")
        status = 1
    finally:
        if not existing and not os.environ.get("KEEP"):
            lifecycle.down(cache, [NAME])
    say(f"All of it took {time.monotonic() - began:.0f} s.")
    return status


def on_cluster(target: Target) -> int:
    """Run the tests that need a cluster; those that take the operator away come last, one after the other."""
    environment = {**target.environment, "PERDURE_TEST_IMAGE": target.image, "PERDURE_TEST_CLUSTER": target.name or ""}
    together = pytest(["-m", "cluster and not alone", "-n", "3"], environment)
    alone = pytest(["-m", "cluster and alone"], environment)
    return together or alone


def pytest(arguments: Sequence[str], environment: "os._Environ[str] | dict[str, str]") -> int:
    """Run pytest with the project's settings."""
    command = [sys.executable, "-m", "pytest", "--durations=5", *arguments]
    return subprocess.run(command, env=dict(environment), cwd=REPOSITORY, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
