"""The chains of runs that a Schedule has started: follow them to their ends, and remove them.

A run is removed only once its end is recorded, so a free name means that the run never existed.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from perdure.api.kinds.schedule import ScheduleSpec
from perdure.api.labels import SCHEDULE_LABEL
from perdure.api.names import label_value
from perdure.controller.expiry import remove_finished
from perdure.controller.peers import Peers
from perdure.controller.reconcile.record import Record
from perdure.controller.recorded_state import distrust
from perdure.controller.run_entries import Entry, Standing
from perdure.controller.runs.effects.children import failure_in
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.runtime.chains import next_run
from perdure.schedule import inputs as inp
from perdure.schedule.inputs import RunOutcome
from perdure.schedule.state import Running, ScheduleState


class ScheduledChains:
    """The runs of a Schedule, each with all runs that continue it."""

    def __init__(
        self,
        client: kube.Client,
        record: Record,
        peers: Peers,
        output_of: Callable[[kube.Object], Awaitable[Any]],
    ) -> None:
        """Create it without runs.

        Args:
            client: The client of the API server.
            record: The stored record of the Schedule.
            peers: The runs of this operator.
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
        """The known runs."""
        return self._peers.directory.of_schedule(self._namespace, self._uid)

    async def closed(self, state: ScheduleState, id_of: Callable[[Running], str]) -> list[inp.RunClosed]:
        """The runs that have closed since the last commit.

        Args:
            state: The committed state.
            id_of: Returns the UID of the first run of a chain; empty until the run is known to exist.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        followed = [(run, run_id) for run in state.running if (run_id := id_of(run))]
        chains = self._chains() if followed else {}
        if any(run_id not in chains for _, run_id in followed):
            chains = await self._listed_chains()
        ends = [await self._end_of(run, chains.get(run_id, [])) for run, run_id in followed]
        return [end for end in ends if end is not None]

    async def _end_of(self, run: Running, chain: list[Entry]) -> inp.RunClosed | None:
        """The end of a run and of all runs that continue it; None if the chain is open."""
        gone = inp.RunClosed(name=run.name, outcome=RunOutcome.TERMINATED, time=wall_clock())
        if not chain:
            return gone  # another client has deleted it
        last = max(chain, key=lambda entry: (entry.closed, entry.uid))
        if last.successor or any(entry.standing is not Standing.CLOSED for entry in chain):
            return None  # one is open or about to be created
        try:
            obj = await self._client.get(self._url(last.name))
        except kube.NotFoundError:
            chain = (await self._listed_chains()).get(last.first_uid, [])
            return None if any(entry.standing is not Standing.CLOSED for entry in chain) else gone
        status = obj.get("status") or {}
        if distrust(obj):
            self._peers.suspect(obj)
            return None
        following = next_run(status)
        if following and await self._exists(following):
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

    async def _exists(self, name: str) -> bool:
        try:
            await self._client.get(self._url(name))
        except kube.NotFoundError:
            return False
        return True

    async def remove_old(self, spec: ScheduleSpec, state: ScheduleState, id_of: Callable[[Running], str]) -> None:
        """Remove closed runs beyond the history limits, each with its whole chain.

        Raises:
            ConflictError: The Schedule has changed since it was read.
            RequestError: The Kubernetes API request failed. Call again to retry.
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
        if extra:  # check that the limits and the recorded ends are current
            await self._record.confirm(afresh=True)
        for entry in (entry for chain in extra for entry in chain):
            await remove_finished(self._client, self._url(entry.name), entry.uid)

    def _chains(self) -> dict[str, list[Entry]]:
        """The known runs by the first run of their chain."""
        chains: dict[str, list[Entry]] = {}
        for entry in self.entries():
            chains.setdefault(entry.first_uid, []).append(entry)
        return chains

    async def _listed_chains(self) -> dict[str, list[Entry]]:
        """The chains, including runs that no watch has shown yet: only runs that the API server does not list were deleted."""
        async for obj in self._client.lists.each(
            self._url(), labelSelector=f"{SCHEDULE_LABEL}={label_value(self._name)}"
        ):
            self._peers.noted(obj)
        return self._chains()

    def _url(self, name: str | None = None) -> str:
        return kube.path(kube.PERDURE, self._namespace, "workflowruns", name)


def _ended_well(chain: list[Entry]) -> bool:
    return max(chain, key=lambda entry: (entry.closed, entry.uid)).phase == "Completed"
