import work
from metaflow import FlowSpec, Parameter, retry, step, trigger


@trigger(event={"name": "decided", "parameters": {"image": "image", "approved": "approved"}})
class Finish(FlowSpec):
    image = Parameter("image", type=str)
    approved = Parameter("approved", type=bool)

    @retry(times=3)
    @step
    def start(self):
        self.result = (work.publish if self.approved else work.withdraw)(self.image)
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    Finish()
