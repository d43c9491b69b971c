"""The real operator as a process of this machine, against a real API server, for tests that speak Temporal to it.

It runs here and not in the cluster so that a kill takes effect immediately, and because a client needs a way in.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.service import TLSConfig

from support.cluster.namespace import Cluster, temporary_namespace
from support.cluster.process import Process, free_port

SECRET, AUTHORITY = "perdure-temporal-tls", "perdure-temporal-ca"


@dataclass
class Operator(Process):
    """One operator, and the namespace that it serves."""

    port: int = field(default_factory=free_port)

    def __post_init__(self) -> None:
        """Have it serve Temporal's SDKs."""
        self.options = {
            "PERDURE_TEMPORAL_ADDRESS": self.address,
            "PERDURE_TEMPORAL_AUTHENTICATION": "None",
            "PERDURE_NAMESPACE": self.namespace,
            "PERDURE_TEMPORAL_TLS_SECRET": SECRET,
            "PERDURE_TEMPORAL_TLS_NAMES": "localhost,127.0.0.1",
            "PERDURE_TEMPORAL_CA_CONFIGMAP": AUTHORITY,
            **self.options,
        }

    @property
    def address(self) -> str:
        """Where SDKs connect to."""
        return f"127.0.0.1:{self.port}"

    @cached_property
    def authority(self) -> str:
        """The authority that clients should trust; the operator publishes it in the namespace."""

        def published() -> str:
            found = self.cluster.get("configmap", AUTHORITY) or {}
            return str((found.get("data") or {}).get("ca.crt", ""))

        return str(self.cluster.wait("the authority of the certificate", published))

    async def connect(self, **options: Any) -> Client:
        """Connect a client, by TLS."""
        tls = TLSConfig(server_root_ca_cert=self.authority.encode())
        return await Client.connect(self.address, **{"namespace": self.namespace, "tls": tls, **options})

    @property
    def namespace(self) -> str:
        """Of the cluster, and of the SDKs."""
        return self.cluster.namespace


@contextmanager
def serving(cluster: Cluster, log: Path, *others: str, **options: str) -> Iterator[Operator]:
    """An operator with a namespace of its own; the block removes both at its end. It serves the namespaces `others`, too."""
    with temporary_namespace(cluster, excluded=True) as namespace:
        namespace("create", "secret", "generic", SECRET)  # the chart does so, too
        served = ",".join((namespace.namespace, *others))
        operator = Operator(namespace, log, {"PERDURE_WATCH_NAMESPACES": served, **options})
        try:
            operator.start()
            yield operator
        finally:
            operator.kill()
