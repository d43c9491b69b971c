"""The calls that are being handled, and their end when the operator stops."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from perdure.frontend.errors import unavailable

Answer = TypeVar("Answer")


class OpenCalls:
    """Ends open calls with UNAVAILABLE, which SDKs retry. gRPC would end them with CANCELLED, which they do not."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[Any] | None, None] = {}
        """The tasks of the open calls, in order."""

    async def handle(self, answer: Awaitable[Answer]) -> Answer:
        """Handle a call in the current task.

        Args:
            answer: The answer of the call.

        Raises:
            RpcError: The call failed, or the operator stops.
        """
        task = asyncio.current_task()
        self._tasks[task] = None
        try:
            return await answer
        except asyncio.CancelledError:
            if task is None or task in self._tasks:
                raise  # the caller has disconnected
            task.uncancel()
            raise unavailable("this operator is shutting down; retry") from None
        finally:
            self._tasks.pop(task, None)

    def end(self) -> None:
        """End all open calls."""
        ended, self._tasks = self._tasks, {}
        for task in ended:
            if task is not None:
                task.cancel()
