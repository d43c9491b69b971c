"""Which namespaces an operator serves."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServedNamespaces:
    """The namespaces of an operator."""

    names: tuple[str, ...] = ()
    """Empty: all namespaces of the cluster."""

    def __contains__(self, namespace: str) -> bool:
        return not self.names or namespace in self.names

    def __iter__(self) -> Iterator[str | None]:
        """What to list or watch one after the other to see everything; None stands for all namespaces at once."""
        return iter(self.names or (None,))
