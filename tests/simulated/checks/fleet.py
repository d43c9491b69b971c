"""Invariants of the members of a fleet: no shard has two owners at a time, or no owner for long."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from perdure.controller.fleet.shards import SHARDS
from support.faulty.faults import Faults
from support.faulty.operators import FaultyOperator

_EVERY_SECONDS: Final = 0.25
_TAKE_OVER_SECONDS: Final = 15.0
"""From the death of the owner of a shard until another member owns it, if no request fails."""
_WITH_FAULTS_SECONDS: Final = 50.0
"""The same if requests fail. Those of the only member that can take a shard over may be among them: it may lose its own Lease
just after it has joined, and then waits for the duration of a Lease once more, after timeouts of a fifth of that each."""


class FleetChecker:
    """Checks the owners of shards several times a second."""

    def __init__(self, operators: Sequence[FaultyOperator], faults: Faults, fail: Callable[[str], None]) -> None:
        """`operators` returns the live operators; `fail` records a violation."""
        self._operators = operators
        self._faults = faults
        self._fail = fail
        self._unowned_since = dict.fromkeys(range(SHARDS), 0.0)
        self._all_owned = 0.0
        """When each shard had one owner, the last time."""
        self._disturbed = 0.0

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            self._check(asyncio.get_running_loop().time())

    def disturb(self) -> None:
        """Note a fault of a member: the others get the time that a takeover may take."""
        self._disturbed = asyncio.get_running_loop().time()

    def _check(self, time: float) -> None:
        longest = _WITH_FAULTS_SECONDS if self._faults.rate else _TAKE_OVER_SECONDS
        able = [each for each in self._operators if not each.is_frozen]
        if not able or any(start <= time < end for start, end in self._faults.outages):
            self._unowned_since = dict.fromkeys(range(SHARDS), time)
            return
        owned = [(operator.name, operator.shards) for operator in self._operators]
        if (
            sum(len(shards) for _, shards in owned)
            == SHARDS
            == len(frozenset().union(*(shards for _, shards in owned)))
        ):
            self._all_owned = time
            return
        for shard in range(SHARDS):
            names = [name for name, shards in owned if shard in shards]
            if names:
                self._unowned_since[shard] = time
            elif time > max(self._unowned_since[shard], self._all_owned, self._disturbed) + longest:
                self._fail(f"{time:.3f} nobody has owned shard {shard} for {longest:.0f} s")
            if len(names) > 1:
                self._fail(f"{time:.3f} shard {shard} has two owners: {', '.join(names)}")
