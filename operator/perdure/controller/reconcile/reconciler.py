"""Takes one object further, pass by pass, whatever goes wrong: conflicts, objects that are full, unforeseen errors."""

from datetime import datetime, timedelta
from typing import Final, Protocol

from perdure.controller.errors import may_pass
from perdure.controller.reconcile.record import Record
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.observe import metrics

_FIRST_CONFLICT_PAUSE: Final = timedelta(milliseconds=5)


class Reconciled(Protocol):
    """What is done with one object of a kind."""

    async def take_further(self, time: datetime) -> datetime | None:
        """Observe, decide, commit, apply; when to call again, None if only something outside can wake the object.

        Raises:
            Exception: the object is not taken further now.
        """
        ...

    async def wind_up(self) -> None:
        """The object was deleted: release what it holds, and answer whoever has asked it for something."""
        ...

    async def read_again(self) -> None:
        """Someone else has written: take what the API server has now."""
        ...

    def look_again(self) -> None:
        """A pass has failed half-way: do not take for done what it has begun."""
        ...

    def full(self, error: kube.TooLargeError) -> None:
        """The spec alone fills the object, so that nothing can be written beside it. No other try would do better."""
        ...

    async def broken(self, error: Exception) -> None:
        """The operator cannot process the object, whatever is wrong with it: say so, and answer what was asked of it."""
        ...


class Reconciler:
    """The passes over one object. `advance` is called by one task at a time."""

    def __init__(self, one: Reconciled, record: Record) -> None:
        """`record`: the object as it is known here."""
        self._one = one
        self._record = record
        self._conflicts = 0

    async def advance(self) -> datetime | None:
        """Take the object as far as it goes now; when to call again, None if only something outside can wake it.

        Raises:
            NotYetError: something that it needs is being compiled.
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server did not do its part; to be called again.
        """
        if self._is_gone():
            await self._one.wind_up()
            return None
        try:
            # What was committed in an earlier pass may be old by now: this process may have stood still meanwhile.
            self._record.doubt()
            if self._record.outdated:
                await self._one.read_again()
            wake = None if self._is_gone() else await self._one.take_further(now())
        except kube.ConflictError:
            metrics.COMMIT_CONFLICTS.inc()
            self._conflicts += 1
            await self._one.read_again()
            # At once the first time; were somebody to write all the time, ever later.
            return now() + _FIRST_CONFLICT_PAUSE * ((1 << min(self._conflicts, 10)) - 2)
        except kube.TooLargeError as error:
            self._one.full(error)
            return None
        except Exception as error:
            self._one.look_again()
            if not may_pass(error):
                await self._one.broken(error)
            raise
        self._conflicts = 0
        return now() if self._is_gone() else wake

    def _is_gone(self) -> bool:
        return self._record.gone
