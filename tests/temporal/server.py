"""The real operator as a process of this machine, against a real API server, for tests that speak Temporal to it.

It runs here and not in the cluster so that a kill hits at the very instant, and because a client needs a way in.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from kube import Cluster
from process import Process, free_port


@dataclass
class Operator(Process):
    """One operator, and the namespace that it serves."""

    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        """Have it serve that namespace, and Temporal's SDKs."""
        self.options = {
            "PERDURE_WATCH_NAMESPACES": self.namespace,
            "PERDURE_TEMPORAL_ADDRESS": self.address,
            "PERDURE_TEMPORAL_AUTHENTICATION": "None",
            **self.options,
        }

    @property
    def address(self) -> str:
        """Where SDKs connect to."""
        return f"127.0.0.1:{self.port}"

    @property
    def namespace(self) -> str:
        """Of the cluster, and of the SDKs."""
        return self.cluster.namespace


@contextmanager
def serving(cluster: Cluster, log: Path, **options: str) -> Iterator[Operator]:
    """An operator with a namespace of its own, both gone at the end of the block; no other operator runs meanwhile."""
    name = f"sdk-{secrets.token_hex(4)}"
    cluster("create", "namespace", name)
    operator = Operator(Cluster(cluster.kubectl, cluster.kubeconfig, name), log, options)
    try:
        with cluster.operator_down():
            operator.start()
            try:
                yield operator
            finally:
                operator.kill()
    finally:
        cluster("delete", "namespace", name, "--wait=false")
