import work
from metaflow import FlowSpec, Parameter, catch, retry, step


class Words(FlowSpec):
    folder = Parameter("folder", type=str)

    @retry(times=3)
    @step
    def start(self):
        self.files = work.list_files(self.folder)
        self.next(self.count, foreach="files")

    @catch(var="failed")
    @step
    def count(self):
        self.counted = work.count(self.input)
        self.next(self.report)

    @retry(times=3)
    @step
    def report(self, inputs):
        self.merge_artifacts(inputs, include=["files"])
        self.words = work.report([each.counted for each in inputs if not each.failed], self.files)
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    Words()
