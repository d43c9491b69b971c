"""A user's program with flows, for type checkers."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, assert_type

import perdure.flow as pf
from perdure.client import AsyncClient, AsyncRun, Client, Run

etl = pf.Environment("etl", cpu="500m")


@dataclass
class Part:
    source: str


@etl.activity(timeout="10m", retries=5)
def extract(source: str, day: date) -> Part:
    return Part(f"{source}-{day}")


files = pf.Workspace("files", size="1Gi")


@etl.activity(retry="standard", workspace=files.read_only)
async def count(parts: list[Part]) -> int:
    return len(parts)


@etl.flow
async def nightly(day: date, sources: tuple[str, ...] = ("eu",)) -> int:
    _ = assert_type(extract("eu", day), Coroutine[Any, Any, Part])
    extract("eu", day)  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]
    asyncio.create_task(count([])).cancel()
    parts = assert_type(await pf.map(extract, sources, day=day, at_most=4), list[Part])
    approved = assert_type(await pf.signal("approve", bool, timeout="1d"), bool)
    first = assert_type(await pf.race(extract("eu", day), extract("us", day)), Part)
    assert_type(await count([*parts, first]), int)
    assert_type(await pf.gather(extract("eu", day), extract("us", day)), tuple[Part, Part])
    mixed = await pf.gather(extract("eu", day), count([]), pf.signal("note", str))
    assert_type(mixed, tuple[Part, int, str])  # type: ignore[assert-type]  # mypy has Any
    assert_type(await pf.gather(*(extract(each, day) for each in sources)), list[Part])
    assert_type(await pf.race(extract("eu", day), count([]), pf.sleep("1h")), Part | int | None)
    return len(parts) if approved else 0


def run_here() -> None:
    assert_type(nightly.run_local(date(2026, 11, 27)), int)
    run = pf.LocalRun()
    assert_type(run.run(nightly, day=date(2026, 11, 27)), int)
    run.retry_policies["standard"] = pf.Retry(attempts=2)
    assert_type(run.folder_of(files), Path)
    assert_type(files.path, Path)
    nightly.run_local("2026-11-27")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = extract(day=date(2026, 11, 27))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue, reportUnknownVariableType]
    pf.mapp(extract, [])  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def start(client: Client) -> None:
    run = assert_type(client.start(nightly, day=date(2026, 11, 27)), Run[int])
    assert_type(run.result(timeout="1h"), int)
    client.start(nightly, day=1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(client.start_workflow("order", {"id": 1}, result_type=Part).result(), Part)
    assert_type(run.query("paid", result_type=bool), bool)


async def start_later(client: AsyncClient) -> None:
    run = assert_type(await client.start(nightly, day=date(2026, 11, 27)), AsyncRun[int])
    assert_type(await run.result(), int)
