from datetime import date

import work

import perdure.flow as pf
from perdure.client import Client, RunRequest

etl = pf.Environment("etl")


@etl.activity(timeout="10m", retry=pf.Retry(attempts=4, initial="10s"))
def extract(source: str, day: date) -> work.Part:
    return work.extract(source, day)


@etl.activity(timeout="30m", retries=3)
def load(parts: list[work.Part]) -> int:
    return work.load(parts)


@etl.flow
async def nightly(sources: list[str], day: date | None = None) -> int:
    day = day or (pf.scheduled_time() or pf.now()).date()
    return await load(await pf.map(extract, sources, day=day, at_most=2))


def schedule(client: Client) -> None:
    client.schedules.create("nightly", RunRequest.of_flow(nightly, sources=["eu", "us", "asia"]), cron="0 2 * * *")
