import asyncio
from datetime import date, datetime, timedelta

import flyte
import work

env = flyte.TaskEnvironment("etl")


@env.task(retries=flyte.RetryStrategy(count=3, backoff=flyte.Backoff(base=timedelta(seconds=10))), timeout=600)
async def extract(source: str, day: date) -> work.Part:
    return work.extract(source, day)


@env.task(retries=3, timeout=1800)
async def load(parts: list[work.Part]) -> int:
    return work.load(parts)


@env.task(
    triggers=flyte.Trigger(
        "nightly", flyte.Cron("0 2 * * *"), inputs={"sources": ["eu", "us", "asia"], "time": flyte.TriggerTime}
    )
)
async def nightly(sources: list[str], time: datetime) -> int:
    limit = asyncio.Semaphore(2)

    async def limited(source: str) -> work.Part:
        async with limit:
            return await extract(source, time.date())

    return await load(list(await asyncio.gather(*map(limited, sources))))


def backfill(first: datetime, days: int) -> None:
    for number in range(days):
        flyte.run(nightly, ["eu", "us", "asia"], first + timedelta(days=number))
