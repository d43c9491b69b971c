import work
from metaflow import FlowSpec, JSONType, Parameter, parallel_map, resources, retry, step, timeout


class Sweep(FlowSpec):
    first = Parameter("rates", type=JSONType)
    target = Parameter("target", default=0.9)

    @step
    def start(self):
        self.rates, self.epochs = self.first, 2
        self.next(self.train)

    @resources(cpu=8, memory=16384)
    @retry(times=3)
    @timeout(hours=1)
    @step
    def train(self):
        trials = parallel_map(lambda rate: work.train(rate, self.epochs), self.rates, max_parallel=4)
        self.best = work.ranked(trials)[0]
        self.rates, self.epochs = work.better_half(trials), self.epochs * 2
        self.state = "done" if self.best.score >= self.target or len(trials) == 1 else "more"
        self.next({"done": self.end, "more": self.train}, condition="state")

    @step
    def end(self):
        pass


if __name__ == "__main__":
    Sweep()
