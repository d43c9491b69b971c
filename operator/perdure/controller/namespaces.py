"""Which namespaces an operator serves."""

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class ServedNamespaces:
    """The namespaces of an operator."""

    names: tuple[str, ...] = ()
    """The namespaces to serve; empty: all namespaces of the cluster."""
    excluded: tuple[str, ...] = ()
    """Namespaces to leave to another operator. ``*`` matches any characters: ``team-*``."""

    def __contains__(self, namespace: str) -> bool:
        if self.names and namespace not in self.names:
            return False
        return not any(fnmatchcase(namespace, pattern) for pattern in self.excluded)

    def __iter__(self) -> Iterator[str | None]:
        """Yield the namespaces to list or watch; None stands for all namespaces together.

        Lists and watches of all namespaces leave out excluded ones (`perdure.kube.client.Client`).
        """
        return iter([name for name in self.names if name in self] if self.names else (None,))
