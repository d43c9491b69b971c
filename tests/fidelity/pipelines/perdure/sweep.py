import work

import perdure.flow as pf

lab = pf.Environment("lab", cpu="2", memory="4Gi")


@lab.activity(timeout="1h", retries=3)
def train(rate: float, epochs: int) -> work.Trial:
    return work.train(rate, epochs)


@lab.flow
async def sweep(rates: list[float], target: float = 0.9, epochs: int = 2) -> work.Trial:
    while True:
        trials = await pf.map(train, rates, epochs=epochs, at_most=4)
        best = work.ranked(trials)[0]
        if best.score >= target or len(trials) == 1:
            return best
        rates, epochs = work.better_half(trials), epochs * 2
