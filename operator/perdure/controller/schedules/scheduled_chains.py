"""The chains of runs that a Schedule has started: followed to their ends, and removed.

A run is removed only once its end is recorded, so a name that is free means that there was no run yet.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from perdure.api.labels import SCHEDULE_LABEL
from perdure.api.names import label_value
from perdure.api.schedule import ScheduleSpec
from perdure.controller.expiry import remove_finished
from perdure.controller.peers import Peers
from perdure.controller.reconcile.record import Record
from perdure.controller.run_entries import Entry, Standing
from perdure.controller.runs.child_outcomes import failure_in, has_successor
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.runtime.commits import OF_RUNS, edited
from perdure.schedule import inputs as inp
from perdure.schedule.inputs import RunOutcome
from perdure.schedule.state import Running, ScheduleState


class ScheduledChains:
    """Each run of a Schedule, with all runs that continue it."""

    def __init__(
        self,
        client: kube.Client,
        record: Record,
        peers: Peers,
        output_of: Callable[[kube.Object], Awaitable[Any]],
    ) -> None:
        """Follow none yet.

        Args:
            client: The client of the API server.
            record: The Schedule.
            peers: All runs.
            output_of: Reads the output of a run.
        """
        meta = record.object["metadata"]
        self._namespace: str = meta["namespace"]
        self._name: str = meta["name"]
        self._uid: str = meta["uid"]
        self._client = client
        self._record = record
        self._peers = peers
        self._output_of = output_of

    def entries(self) -> list[Entry]:
        """The runs that are known."""
        return self._peers.directory.of_schedule(self._namespace, self._uid)

    async def closed(self, state: ScheduleState, id_of: Callable[[Running], str]) -> list[inp.RunClosed]:
        """The runs that have closed since.

        Args:
            state: The state, committed.
            id_of: The UID of the first run of a chain; empty while it is not known to exist.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: The Kubernetes API request failed. Call again to retry.
        """
        followed = [(run, run_id) for run in state.running if (run_id := id_of(run))]
        chains = self._chains() if followed else {}
        if any(run_id not in chains for _, run_id in followed):
            chains = await self._listed_chains()
        ends = [await self._end_of(run, chains.get(run_id, [])) for run, run_id in followed]
        return [end for end in ends if end is not None]

    async def _end_of(self, run: Running, chain: list[Entry]) -> inp.RunClosed | None:
        """How a run has ended, with all that continues it; None while it continues."""
        gone = inp.RunClosed(name=run.name, outcome=RunOutcome.TERMINATED, time=wall_clock())
        if not chain:
            return gone  # someone else has deleted it
        last = max(chain, key=lambda entry: (entry.closed, entry.uid))
        if last.successor or any(entry.standing is not Standing.CLOSED for entry in chain):
            return None  # one is open, or about to be made
        try:
            obj = await self._client.get(self._url(last.name))
        except kube.NotFoundError:
            chain = (await self._listed_chains()).get(last.first_uid, [])
            return None if any(entry.standing is not Standing.CLOSED for entry in chain) else gone
        status = obj.get("status") or {}
        if edited(status, OF_RUNS):
            self._peers.suspect(obj)
            return None
        if has_successor(status) and not await self._successor_is_gone(status):
            return None
        phase = status.get("phase", "")
        return inp.RunClosed(
            name=run.name,
            outcome=RunOutcome(phase) if phase in set(RunOutcome) else RunOutcome.TERMINATED,
            time=datetime.fromisoformat(status["completionTime"]),
            result=await self._output_of(obj),
            failure=failure_in(status),
            status_failure=status.get("failure"),
        )

    async def _successor_is_gone(self, status: dict[str, Any]) -> bool:
        closing = status["history"]["events"][-1]
        try:
            await self._client.get(self._url(closing.get("newWorkflowRun") or closing.get("resetRun")))
        except kube.NotFoundError:
            return True
        return False

    async def remove_old(self, spec: ScheduleSpec, state: ScheduleState, id_of: Callable[[Running], str]) -> None:
        """Keep that number of closed runs of either sort, the newest, each with its whole chain.

        Raises:
            ConflictError: The Schedule is not as it was read.
            ApiError, OSError, aiohttp.ClientError, TimeoutError: The Kubernetes API request failed. Call again to retry.
        """
        open_ = {id_of(run) for run in state.running}
        closed = [
            chain
            for first, chain in self._chains().items()
            if first not in open_ and all(entry.standing is Standing.CLOSED for entry in chain)
        ]
        closed.sort(key=lambda chain: max((entry.closed, entry.uid) for entry in chain), reverse=True)
        well = [chain for chain in closed if _ended_well(chain)]
        badly = [chain for chain in closed if not _ended_well(chain)]
        extra = [*well[spec.successful_runs_history_limit :], *badly[spec.failed_runs_history_limit :]]
        if extra:  # the limits, and which runs are recorded as ended, are those of now
            await self._record.confirm(afresh=True)
        for entry in (entry for chain in extra for entry in chain):
            await remove_finished(self._client, self._url(entry.name), entry.uid)

    def _chains(self) -> dict[str, list[Entry]]:
        """The runs that are known, by the first one of their chain."""
        chains: dict[str, list[Entry]] = {}
        for entry in self.entries():
            chains.setdefault(entry.first_uid, []).append(entry)
        return chains

    async def _listed_chains(self) -> dict[str, list[Entry]]:
        """The same, with the runs that no watch has shown yet: only what the API server does not list was deleted."""
        async for obj in self._client.lists.each(
            self._url(), labelSelector=f"{SCHEDULE_LABEL}={label_value(self._name)}"
        ):
            self._peers.noted(obj)
        return self._chains()

    def _url(self, name: str | None = None) -> str:
        return kube.path(kube.PERDURE, self._namespace, "workflowruns", name)


def _ended_well(chain: list[Entry]) -> bool:
    return max(chain, key=lambda entry: (entry.closed, entry.uid)).phase == "Completed"
