"""Requests to the cluster; every error becomes one sentence.

The client of the API server is slow to import, so it is imported with the first request, not to show help.
"""

from perdure.cli.cluster.cluster import LOG_STREAMS, Cluster, connect, list_kind
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
    "list_kind",
]
