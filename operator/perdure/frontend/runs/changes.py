"""Notify long polls, and other requests that wait for a state of a run, of its changes."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class RunChanges:
    """Lets callers wait for changes of runs."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[asyncio.Future[None], None]] = {}
        """The futures of the callers that wait for a change of a run, in order."""

    def changed(self, run_id: str) -> None:
        """Notify the callers that wait for a change of a run."""
        for waiting in self._waiting.pop(run_id, {}):
            if not waiting.done():
                waiting.set_result(None)

    @contextmanager
    def next_change(self, run_id: str) -> Iterator[asyncio.Future[None]]:
        """Return a future that is done once a run has changed or was deleted."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, {})[changed] = None
        try:
            yield changed
        finally:
            waiting = self._waiting.get(run_id, {})
            waiting.pop(changed, None)
            if not waiting:
                self._waiting.pop(run_id, None)

    async def wait_until(self, run_id: str, so: Callable[[], bool], seconds: float | None) -> bool:
        """Wait until a condition holds, and return whether it does. It is checked at each change of the run. None: no limit."""
        try:
            async with asyncio.timeout(seconds):
                while not so():
                    with self.next_change(run_id) as changed:
                        await changed
        except TimeoutError:
            return so()
        return True
