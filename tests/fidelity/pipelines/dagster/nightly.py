from datetime import date

import dagster as dg
import work

days = dg.DailyPartitionsDefinition(start_date="2026-11-01")


@dg.op(
    retry_policy=dg.RetryPolicy(max_retries=3, delay=10, backoff=dg.Backoff.EXPONENTIAL),
    tags={"dagster/concurrency_key": "sources"},
)
def extract(context: dg.OpExecutionContext, source: str) -> work.Part:
    return work.extract(source, date.fromisoformat(context.partition_key))


@dg.op(out=dg.DynamicOut(str))
def sources():
    for source in ("eu", "us", "asia"):
        yield dg.DynamicOutput(source, mapping_key=source)


@dg.op(retry_policy=dg.RetryPolicy(max_retries=3))
def load(parts: list[work.Part]) -> int:
    return work.load(parts)


@dg.job(partitions_def=days)
def nightly():
    load(sources().map(extract).collect())


schedule = dg.build_schedule_from_partitioned_job(nightly, hour_of_day=2)
definitions = dg.Definitions(jobs=[nightly], schedules=[schedule])
