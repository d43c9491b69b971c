"""`make test`: all tests that must pass, on a new cluster. `make test-all` (``--all``): also longer fault tests and benchmarks.

Tests without a cluster run at a lower priority alongside the others, because tests on a cluster mostly wait for pods. Tests that
change the cluster for all others run first. The cluster has its own name and is removed at the end, unless KEEP=1 is set. With
CLUSTER=existing, the tests use the cluster of KUBECONFIG (and IMAGE, see hack/deploy.py).
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster import lifecycle
from cluster.console import say
from cluster.errors import ClusterError
from cluster.paths import REPOSITORY, Cache
from cluster.tools import DEFAULT_TOOLS, ensure_tools
from deploy import existing_cluster, install, kind_cluster

NAME = os.environ.get("NAME", "perdure-test")
VALUES = ("excludeNamespaces={own-*}", "replicas=1")
"""Chart values: one operator. Tests start others in the excluded namespaces (`EXCLUDED` in tests/support/cluster)."""
THOROUGH = {"PERDURE_LONGER": "4", "PERDURE_DIFFERENTIAL_REQUESTS": "50000", "PERDURE_SIMULATION_SEEDS": "20"}
"""How much longer `make test-all` tests faults, unless the environment overrides it."""
BOUNDED = {
    "PYTEST_ADDOPTS": "-o faulthandler_timeout=900 -o faulthandler_exit_on_timeout=true",
    "PYTHONHASHSEED": "0",
}
"""Ends a test that catches its timeout or hangs outside Python: its process exits and prints its threads. Also fixes the order
of sets in all processes; only `make test-all` randomizes it."""


def main() -> int:
    """Run the tests; return the exit status."""
    began = time.monotonic()
    everything = "--all" in sys.argv[1:]
    environment = {**(THOROUGH if everything else BOUNDED), **os.environ}
    cache = Cache.from_environment(os.environ)
    try:
        ensure_tools(cache, (*DEFAULT_TOOLS, "versitygw"))  # the chart tests need helm, the artifact tests the other
        with ThreadPoolExecutor(max_workers=1) as background, TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            without = background.submit(without_cluster, environment, everything=everything, log=log)
            try:
                statuses, environment = on_cluster(cache, environment)
            finally:
                ended = without.result()
                say(log.read_text())
            statuses += ended
        if everything:
            statuses.append(pytest("bench", environment))
        status = max(statuses)
    except ClusterError as error:
        say(f"Error: {error}")
        status = 1
    finally:
        if not (os.environ.get("KEEP") or existing()):
            remove(cache)
    say(f"Total time: {time.monotonic() - began:.0f} s.")
    return status


def remove(cache: Cache) -> None:
    """Delete the cluster. A failure does not change the result of the tests."""
    try:
        lifecycle.down(cache, [NAME])
    except ClusterError as error:
        say(f"The cluster {NAME} was not removed: {error}")


def on_cluster(cache: Cache, environment: Mapping[str, str]) -> tuple[list[int], dict[str, str]]:
    """Create a cluster, or use the existing one, and run the tests that need it.

    Args:
        cache: The cache of the cluster scripts.
        environment: The environment of the tests.

    Returns:
        The exit statuses, and the environment of tests on the cluster.
    """
    target = existing_cluster(cache, os.environ.get("IMAGE")) if existing() else kind_cluster(cache, NAME, audit=True)
    install(cache, target, *VALUES)
    image, name = target.image, target.name or ""
    there = {**environment, **target.environment, "PERDURE_TEST_IMAGE": image, "PERDURE_TEST_CLUSTER": name}
    alone = pytest("cluster and alone and not bench", there)
    return [alone, pytest("cluster and not alone and not bench", there, processes=5)], there


def without_cluster(environment: Mapping[str, str], *, everything: bool, log: Path) -> list[int]:
    """Run the tests that need no cluster, and some or all of them once more on the image's Python; return the exit statuses."""
    first = pytest("not cluster and not bench", environment, processes=3, log=log)
    options = ["-n3"] if everything else ["--short"]
    return [first, logged([sys.executable, "hack/image_tests.py", *options], environment, log)]


def existing() -> bool:
    """Whether these scripts did not create the cluster."""
    return os.environ.get("CLUSTER") == "existing"


def pytest(which: str, environment: Mapping[str, str], *, processes: int = 0, log: Path | None = None) -> int:
    """Run the tests whose markers match ``which``, with the project's settings; ``processes`` at a time, or in this one.

    If ``log`` is set, their output goes to that file, and they run at a lower priority.
    """
    parallel = ["-n", str(processes), "--dist=load", "--maxschedchunk=1"]  # in order: the slow ones come first
    command = [sys.executable, "-m", "pytest", "--durations=5", "-m", which, *parallel]
    if log is None:
        return subprocess.run(command, env=environment, cwd=REPOSITORY, check=False).returncode
    return logged(command, environment, log)


def logged(command: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
    """Run a command at a lower priority; append its output to a file."""
    with log.open("ab") as output:
        command = ["nice", "-n2", *command]
        return subprocess.run(
            command, env=environment, cwd=REPOSITORY, stdout=output, stderr=output, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
