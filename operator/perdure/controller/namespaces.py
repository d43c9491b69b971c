"""The namespaces that an operator serves, and the periodic checks of them that keep no state in between."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

import structlog

from perdure.controller.fleet.shards import Shards
from perdure.kube import client as kube
from perdure.kube.clock import until_next_poll

CHECK_SECONDS: Final = 30.0
"""Seconds between two checks by default, and so the longest delay of what they find."""


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


async def check_forever(
    check: Callable[[str | None], Awaitable[object]],
    served: ServedNamespaces,
    shards: Shards,
    subject: str,
    *,
    seconds: float = CHECK_SECONDS,
) -> None:
    """Check each served namespace periodically, until cancelled.

    Args:
        check: Checks a namespace; None for all namespaces. If its requests fail, it is called again at the next check.
        served: The served namespaces.
        shards: The shards, so that only one member of a fleet does it.
        subject: The subject of the check, which decides the member.
        seconds: Seconds between two checks.
    """
    log = structlog.get_logger("perdure.checks")
    while True:
        for namespace in served if shards.owns("", subject) else ():
            try:
                await check(namespace)
            except kube.RequestError as error:
                log.warning("Check failed, retrying", subject=subject, namespace=namespace, error=repr(error))
        await until_next_poll(seconds)
