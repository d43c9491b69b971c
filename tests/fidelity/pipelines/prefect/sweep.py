import work
from prefect import flow, task, unmapped
from prefect.task_runners import ThreadPoolTaskRunner


@task(retries=3, timeout_seconds=3600)
def train(rate: float, epochs: int) -> work.Trial:
    return work.train(rate, epochs)


@flow(task_runner=ThreadPoolTaskRunner(max_workers=4))
def sweep(rates: list[float], target: float = 0.9, epochs: int = 2) -> work.Trial:
    while True:
        trials = train.map(rates, unmapped(epochs)).result()
        best = work.ranked(trials)[0]
        if best.score >= target or len(trials) == 1:
            return best
        rates, epochs = work.better_half(trials), epochs * 2
