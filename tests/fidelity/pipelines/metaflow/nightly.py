from datetime import UTC, date, datetime, timedelta

import work
from metaflow import FlowSpec, Parameter, Runner, retry, schedule, step, timeout


@schedule(cron="0 2 * * *")
class Nightly(FlowSpec):
    day = Parameter("day", default=datetime.now(UTC).date().isoformat())

    @step
    def start(self):
        self.sources = ["eu", "us", "asia"]
        self.next(self.extract, foreach="sources")

    @retry(times=3)
    @timeout(minutes=10)
    @step
    def extract(self):
        self.part = work.extract(self.input, date.fromisoformat(self.day))
        self.next(self.load)

    @retry(times=3)
    @timeout(minutes=30)
    @step
    def load(self, inputs):
        self.rows = work.load([each.part for each in inputs])
        self.next(self.end)

    @step
    def end(self):
        pass


def backfill(first: date, days: int) -> None:
    for number in range(days):
        with Runner(__file__).run(day=(first + timedelta(days=number)).isoformat(), max_workers=2):
            pass


if __name__ == "__main__":
    Nightly()
