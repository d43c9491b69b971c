"""Flows for tests with a worker, whose sandbox imports this module again for each run."""

from datetime import date

import perdure.flow as pf

jobs = pf.Environment("jobs")
checks = pf.Environment("checks")
files = pf.Workspace("files", size="1Gi")


@jobs.activity(retries=2)
def extract(source: str, day: date) -> int:
    return len(source) * day.day


@jobs.flow
async def nightly(day: date, sources: list[str]) -> int:
    parts: list[int] = await pf.map(extract, sources, day=day, at_most=2)
    await pf.sleep("1s")
    bonus = await pf.signal("bonus", int)
    return sum(parts) + bonus + await extract(source="x", day=day)


@jobs.activity(retry="quick")
def ask(number: int) -> int:
    return number


@jobs.flow
async def asking(number: int) -> int:
    return sum(await pf.map(ask, range(number)))


@jobs.activity(workspace=files)
def write(number: int) -> int:
    return number


@checks.activity(workspace=files.read_only, retries=0)
def check(number: int) -> int:
    return number


@jobs.flow
async def build(number: int) -> int:
    return await check(await write(number))
