"""What waits for a change of a run: long polls, and requests that are answered once a run is in some state."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class RunChanges:
    """The changes of runs, for those who wait for them."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}

    def changed(self, run_id: str) -> None:
        """A run has come to a new state."""
        for waiting in self._waiting.pop(run_id, set()):
            if not waiting.done():
                waiting.set_result(None)

    @contextmanager
    def next_change(self, run_id: str) -> Iterator[asyncio.Future[None]]:
        """Gives what is done once a run has come to a new state, or has gone."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run_id, set()).add(changed)
        try:
            yield changed
        finally:
            self._waiting.get(run_id, set()).discard(changed)

    async def wait_until(self, run_id: str, so: Callable[[], bool], seconds: float | None) -> bool:
        """Wait until something is so of a run, looked at whenever it changes; whether it is. `seconds` None: for ever."""
        try:
            async with asyncio.timeout(seconds):
                while not so():
                    with self.next_change(run_id) as changed:
                        await changed
        except TimeoutError:
            return so()
        return True
