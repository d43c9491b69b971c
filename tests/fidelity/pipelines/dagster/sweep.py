import dagster as dg
import work

ROUNDS = 3


@dg.op(out=dg.DynamicOut(dict))
def first(rates: list[float], epochs: int):
    for number, rate in enumerate(rates):
        yield dg.DynamicOutput({"rate": rate, "epochs": epochs}, mapping_key=str(number))


@dg.op(retry_policy=dg.RetryPolicy(max_retries=3), tags={"dagster/max_runtime": "3600"})
def train(trial: dict) -> work.Trial:
    if "score" in trial:
        return work.Trial(**trial)
    return work.train(**trial)


@dg.op(out=dg.DynamicOut(dict))
def following(trials: list[work.Trial], target: float):
    best = work.ranked(trials)[0]
    if best.score >= target or len(trials) == 1:
        yield dg.DynamicOutput(vars(best), mapping_key="best")
        return
    for number, rate in enumerate(work.better_half(trials)):
        yield dg.DynamicOutput({"rate": rate, "epochs": trials[0].epochs * 2}, mapping_key=str(number))


@dg.op
def best(trials: list[work.Trial]) -> work.Trial:
    return work.ranked(trials)[0]


@dg.graph
def sweep(rates: list[float], epochs: int, target: float):
    trials = first(rates, epochs).map(train).collect()
    for _ in range(ROUNDS - 1):
        trials = following(trials, target).map(train).collect()
    return best(trials)


job = sweep.to_job(executor_def=dg.multiprocess_executor.configured({"max_concurrent": 4}))
definitions = dg.Definitions(jobs=[job])
