"""A nightly load in Python: activities run in pods of their own, and a signal approves the result.

perdure deploy examples/flow/etl.py --image localhost/perdure:dev --mount
perdure start --type nightly --task-queue etl --input '{"day": "2026-11-27"}' --name nightly
perdure signal nightly --name approve --input true
perdure result nightly
"""

from dataclasses import dataclass
from datetime import date

import perdure.flow as pf

etl = pf.Environment("etl", cpu="10m", memory="64Mi")


@dataclass
class Part:
    """The rows of a source."""

    source: str
    rows: list[int]


@etl.activity(timeout="2m", retries=5)
def extract(source: str, day: date) -> Part:
    """Read the rows of a day."""
    return Part(source, [day.day, day.month, len(source)])


@etl.activity(timeout="2m", retries=5)
def load(parts: list[Part]) -> int:
    """Write all rows, and return their sum."""
    return sum(sum(part.rows) for part in parts)


@etl.flow
async def nightly(day: date | None = None, sources: tuple[str, ...] = ("eu", "us")) -> int:
    """Load a day, by default that of the Schedule or of the start, once someone has approved it."""
    day = day or (pf.scheduled_time() or pf.now()).date()
    parts = await pf.map(extract, sources, day=day, at_most=4)
    if not await pf.signal("approve", bool, timeout="1d"):
        raise ValueError("the load was rejected")
    return await load(parts)
