import asyncio

import flyte
import work

env = flyte.TaskEnvironment("lab", resources=flyte.Resources(cpu="2", memory="4Gi"))


@env.task(retries=3, timeout=3600)
async def train(rate: float, epochs: int) -> work.Trial:
    return work.train(rate, epochs)


@env.task
async def sweep(rates: list[float], target: float = 0.9, epochs: int = 2) -> work.Trial:
    limit = asyncio.Semaphore(4)

    async def limited(rate: float, epochs: int) -> work.Trial:
        async with limit:
            return await train(rate, epochs)

    while True:
        trials = await asyncio.gather(*(limited(rate, epochs) for rate in rates))
        best = work.ranked(trials)[0]
        if best.score >= target or len(trials) == 1:
            return best
        rates, epochs = work.better_half(trials), epochs * 2
