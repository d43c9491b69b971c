"""`make bench`: create a cluster, install Perdure, and measure how fast it is.

The cluster has its own name, and one node, because all nodes would share this machine. It is removed at the end, unless KEEP=1
is set. The measured operator runs outside the cluster; the deployed one is scaled to zero, because it would watch the same
objects. With CLUSTER=existing, the benchmark uses the cluster of KUBECONFIG (and IMAGE, see hack/deploy.py), and its operator
keeps running. Set TEMPORAL=host:port to compare with a Temporal server.
"""

import os
import subprocess
import sys

from cluster import lifecycle
from cluster.console import say
from cluster.errors import ClusterError
from cluster.paths import REPOSITORY, Cache
from deploy import existing_cluster, install, kind_cluster
from runtests import VALUES

NAME = os.environ.get("NAME", "perdure-bench")
RESULTS = "build/bench.json"


def main() -> int:
    """Run the benchmark; return the exit status."""
    cache = Cache.from_environment(os.environ)
    existing = os.environ.get("CLUSTER") == "existing"
    try:
        target = existing_cluster(cache, os.environ.get("IMAGE")) if existing else kind_cluster(cache, NAME, workers=0)
        install(cache, target, *(VALUES if existing else (*VALUES, "replicas=0")))
        return measure({**target.environment, "PERDURE_TEST_IMAGE": target.image})
    except ClusterError as error:
        say(f"Error: {error}")
        return 1
    finally:
        if not (existing or os.environ.get("KEEP")):
            lifecycle.down(cache, [NAME])


def measure(environment: dict[str, str]) -> int:
    """Measure in a separate process, and also write the results to a file."""
    (REPOSITORY / RESULTS).parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "bench", "--json", RESULTS, *sys.argv[1:]]
    if temporal := os.environ.get("TEMPORAL"):
        command += ["--temporal", temporal]
    paths = os.pathsep.join(str(REPOSITORY / folder) for folder in ("operator", "tests", "hack"))
    return subprocess.run(command, env={**environment, "PYTHONPATH": paths}, cwd=REPOSITORY, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
