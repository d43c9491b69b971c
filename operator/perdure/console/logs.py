"""Streams the log of an attempt as its container writes it."""

import asyncio
from collections.abc import AsyncIterator

from perdure.client.cluster import Cluster
from perdure.client.errors import CliError, GoneError, UnreachableError
from perdure.kube.errors import NoResponseError
from perdure.view.logs import Lines, LogOf

TAIL = 2_000
"""Maximum lines of an existing log to read."""
_TRIES = 5
"""Maximum number of failed reads of the log."""
_PAUSE = 1.0


async def text_of(cluster: Cluster, log: LogOf, *, follow: bool) -> AsyncIterator[str]:
    """Read a log.

    Args:
        cluster: The cluster, with the namespace of the run.
        log: The log.
        follow: Whether to continue until the container ends.

    Yields:
        Lines with their times, then the reason if no more lines can be read.
    """
    query = {"container": log.container, "timestamps": "true", "tailLines": str(TAIL)}
    if follow:
        query["follow"] = "true"
    lines, tries = Lines(timestamps=True, pattern=None), 0
    while True:
        try:
            async for raw in cluster.runs.log(log.pod, **query):
                tries = 0
                text = lines.take(raw)
                if text is not None:
                    yield f"{text}\n"
        except GoneError:
            yield "(The pod was deleted, and its log with it.)\n"
        except UnreachableError as error:
            # A container may write nothing for a minute.
            was_silent = isinstance(error.__cause__, NoResponseError) and error.__cause__.is_timeout
            tries += not was_silent
            if follow and tries < _TRIES:
                await asyncio.sleep(_PAUSE)
                lines.again()
                if lines.last:
                    query.pop("tailLines", None)
                    query["sinceTime"] = lines.last
                continue
            yield f"(The log cannot be read: {error})\n"
        except CliError as error:
            yield f"(The log cannot be read: {error})\n"
        return
