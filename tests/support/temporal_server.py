"""Temporal's own server, built from hack/node-image/temporal into the project's cache, in memory."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from cluster import gobuild
from cluster.paths import Cache
from cluster.store import locked
from support.temporal import Server

SWITCHED_ON = (
    "frontend.enableBatchOperationsForStandaloneActivities=true",
    "history.enableStandaloneActivityOperatorCommands=true",
    "history.enableUpdateCallbacks=true",
)
"""Settings of the server that is recorded: what it serves only with them, Perdure always serves."""


@contextmanager
def temporal_server(*dynamic_config: str) -> Iterator[Server]:
    """A server with a namespace of its own, on loopback ports; gone at the end of the block.

    Args:
        dynamic_config: Settings of the server, as `name=value` with a value in YAML.
    """
    cache = Cache.from_environment(os.environ)
    with locked(cache.locks / "build"):
        program = gobuild.build(cache, gobuild.TEMPORAL) / "temporal"
    with subprocess.Popen(
        [program, *dynamic_config], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        try:
            address, namespace, http_address = running.stdout.readline().split()
            yield Server(address, namespace, http_address=http_address)
        finally:
            running.stdin.close()  # it ends with that
