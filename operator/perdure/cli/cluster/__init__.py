"""Asking the cluster; whatever goes wrong becomes one sentence.

What speaks to an API server is slow to import: it is imported when something is asked, not when help is shown.
"""

from perdure.cli.cluster.cluster import LOG_STREAMS, Cluster, connect
from perdure.cli.cluster.errors import ExistsError, GoneError, NoNamespaceError, UnreachableError
from perdure.cli.cluster.requests import Object

__all__ = [
    "LOG_STREAMS",
    "Cluster",
    "ExistsError",
    "GoneError",
    "NoNamespaceError",
    "Object",
    "UnreachableError",
    "connect",
]
