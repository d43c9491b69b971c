import work
from metaflow import FlowSpec, Parameter, retry, step, timeout


class Prepare(FlowSpec):
    version = Parameter("version", type=str)

    @retry(times=3)
    @timeout(hours=1)
    @step
    def start(self):
        self.image = work.build(self.version)
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    Prepare()
