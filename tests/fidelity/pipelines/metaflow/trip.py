import work
from metaflow import FlowSpec, Parameter, current, retry, step


class Plan(FlowSpec):
    trip = Parameter("trip", type=str)

    @step
    def start(self):
        self.bookings, self.waiting, self.failed = [], ["car", "hotel", "flight"], None
        self.next(self.book)

    @retry(times=1)
    @step
    def book(self):
        try:
            self.bookings = [*self.bookings, work.book(self.waiting[-1], self.trip)]
            self.waiting = self.waiting[:-1]
            self.state = "book" if self.waiting else "end"
        except Exception as error:
            if current.retry_count == 0:
                raise
            self.failed, self.state = str(error), "undo"
        self.next({"undo": self.undo, "book": self.book, "end": self.end}, condition="state")

    @retry(times=4)
    @step
    def undo(self):
        for booking in reversed(self.bookings):
            work.cancel(booking)
        self.next(self.end)

    @step
    def end(self):
        if self.failed:
            raise RuntimeError(self.failed)


if __name__ == "__main__":
    Plan()
