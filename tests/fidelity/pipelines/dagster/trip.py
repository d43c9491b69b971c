import dagster as dg
import work


def booking(what: str) -> dg.OpDefinition:
    @dg.op(name=what, retry_policy=dg.RetryPolicy(max_retries=1))
    def book(trip: str, before: list[str]) -> list[str]:
        return [*before, work.book(what, trip)]

    return book


@dg.graph
def plan(trip: str):
    bookings: list[str] = []
    for what in ("flight", "hotel", "car"):
        bookings = booking(what)(trip, bookings)
    return bookings


job = plan.to_job(name="trip")


@dg.op(retry_policy=dg.RetryPolicy(max_retries=100))
def cancel(bookings: list[str]) -> None:
    for each in reversed(bookings):
        work.cancel(each)


@dg.job
def undo():
    cancel()


@dg.run_failure_sensor(monitored_jobs=[job], request_job=undo)
def failed(context: dg.RunFailureSensorContext):
    run = context.dagster_run
    stats = context.instance.get_run_step_stats(run.run_id)
    booked = [each for each in stats if each.status.value == "SUCCESS"]
    trip = run.run_config["inputs"]["trip"]
    bookings = [f"{each.step_key}-of-{trip}" for each in sorted(booked, key=lambda each: each.end_time)]
    return dg.RunRequest(run_key=run.run_id, run_config={"ops": {"cancel": {"inputs": {"bookings": bookings}}}})


definitions = dg.Definitions(jobs=[job, undo], sensors=[failed])
