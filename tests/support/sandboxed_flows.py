"""Flows that do what a sandbox forbids. The sandbox imports this module again for each run."""

import random
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import perdure.flow as pf

box = pf.Environment("box")
imports: list[int] = []
"""Changed by flows, if they had the state of the process."""


@box.activity(retries=5)
def big(size: int) -> str:
    return "x" * size


@box.activity(retries=5, definition={"resultSize": "Large"})
def bigger(size: int) -> str:
    return "x" * size


@box.flow
async def clock() -> float:
    return time.time()  # noqa: TID251 - that is the mistake


@box.flow
async def today() -> str:
    return datetime.now(UTC).isoformat()  # noqa: TID251 - that is the mistake


@box.flow
async def zoned(name: str) -> list[str]:
    day = pf.now().astimezone(ZoneInfo(name)).date()
    return [day.isoformat(), datetime(day.year, day.month, day.day, 2, tzinfo=ZoneInfo(name)).isoformat()]


@box.flow
async def chance() -> float:
    return random.random()


@box.flow
async def identity() -> str:
    return str(uuid.uuid4())


@box.flow
async def reading() -> str:
    return Path("/etc/hosts").read_text()  # noqa: ASYNC240 - that is the mistake


@box.flow
async def sized(size: int, *, large: bool) -> int:
    return len(await (bigger(size) if large else big(size)))


@box.flow
async def remembering() -> int:
    imports.append(1)
    return len(imports)


@box.flow(name="2nd flow-ü")
async def named() -> int:
    return await remembering()


@box.flow
async def calling() -> int:
    return await remembering()
