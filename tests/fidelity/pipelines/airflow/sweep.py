from datetime import timedelta

import work
from airflow.sdk import dag, task

ROUNDS = 3


@task
def first(params: dict | None = None) -> list[dict]:
    return [{"rate": rate, "epochs": 2} for rate in params["rates"]]


@task(retries=3, execution_timeout=timedelta(hours=1), max_active_tis_per_dagrun=4)
def train(trial: dict) -> dict:
    if "score" in trial:
        return trial
    return vars(work.train(**trial))


@task
def following(trials: list[dict], params: dict | None = None) -> list[dict]:
    found = [work.Trial(**trial) for trial in trials]
    best = work.ranked(found)[0]
    if best.score >= params["target"] or len(found) == 1:
        return [vars(best)]
    return [{"rate": rate, "epochs": best.epochs * 2} for rate in work.better_half(found)]


@task
def best(trials: list[dict]) -> dict:
    return vars(work.ranked([work.Trial(**trial) for trial in trials])[0])


@dag(schedule=None, params={"rates": [0.01, 0.1, 1.0, 5.0], "target": 0.9})
def sweep():
    trials = train.expand(trial=first())
    for _ in range(ROUNDS - 1):
        trials = train.expand(trial=following(trials))
    best(trials)


sweep()
