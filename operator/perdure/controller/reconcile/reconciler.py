"""The reconcile loop of one object: conflicts, objects that are full, and unexpected errors."""

from datetime import datetime, timedelta
from typing import Final, Protocol

from perdure.controller.errors import is_transient
from perdure.controller.reconcile.record import Record
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.observe import metrics

_FIRST_CONFLICT_PAUSE: Final = timedelta(milliseconds=5)


class Reconciled(Protocol):
    """An object that the reconciler processes."""

    async def reconcile(self, time: datetime) -> datetime | None:
        """Observe, decide, commit, and apply the effects. Return when to call again, or None to wait for an event.

        Raises:
            Exception: The reconciliation failed.
        """
        ...

    async def finalize(self) -> None:
        """Release the objects of a deleted object, and answer its pending requests."""
        ...

    async def read_again(self) -> None:
        """Read the object, because another client has written it."""
        ...

    def recheck(self) -> None:
        """Prepare to repeat the work of a failed reconciliation, which may be incomplete."""
        ...

    def full(self, error: kube.TooLargeError) -> None:
        """Report that the spec leaves no room for the status, so that a retry would fail too."""
        ...

    async def broken(self, error: Exception) -> None:
        """Report that the operator cannot process the object, and answer its pending requests."""
        ...


class Reconciler:
    """Reconciles one object. `advance` is called by one task at a time."""

    def __init__(self, one: Reconciled, record: Record) -> None:
        """`record` has the last known state of the object."""
        self._one = one
        self._record = record
        self._conflicts = 0

    async def advance(self) -> datetime | None:
        """Reconcile the object once. Return when to call again, or None to wait for an event.

        Raises:
            NotYetError: A definition that it needs is being compiled.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        if self._is_deleted():
            await self._one.finalize()
            return None
        try:
            # An earlier commit may be outdated, because this process may have been suspended.
            self._record.unconfirm()
            if self._record.outdated:
                await self._one.read_again()
            wake = None if self._is_deleted() else await self._one.reconcile(now())
        except kube.ConflictError:
            metrics.COMMIT_CONFLICTS.inc()
            self._conflicts += 1
            self._one.recheck()  # the observations are not committed, even if only the metadata has changed
            await self._one.read_again()
            # Immediately the first time; with growing delays if another client keeps writing.
            return now() + _FIRST_CONFLICT_PAUSE * ((1 << min(self._conflicts, 10)) - 2)
        except kube.TooLargeError as error:
            self._one.full(error)
            return None
        except Exception as error:
            self._one.recheck()
            if not is_transient(error):
                await self._one.broken(error)
            raise
        self._conflicts = 0
        return now() if self._is_deleted() else wake

    def _is_deleted(self) -> bool:
        return self._record.deleted
