"""Temporal's own server, built from hack/node-image/temporal into the project's cache, in memory."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from cluster import gobuild
from cluster.paths import Cache
from cluster.store import locked
from fidelity.driver import Server


@contextmanager
def reference() -> Iterator[Server]:
    """A server with a namespace of its own, on a loopback port; gone at the end of the block."""
    cache = Cache.from_environment(os.environ)
    with locked(cache.locks / "build"):
        program = gobuild.build(cache, gobuild.TEMPORAL) / "temporal"
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        try:
            address, namespace = running.stdout.readline().split()
            yield Server(address, namespace)
        finally:
            running.stdin.close()  # it ends with that
