"""The open activities of a run during a step: one object, with a part for each concern."""

from perdure.engine.activities.activity_closing import ActivityClosing
from perdure.engine.activities.activity_deadlines import ActivityDeadlines
from perdure.engine.activities.activity_requests import ActivityRequests
from perdure.engine.activities.attempts import Attempts
from perdure.engine.activities.pod_reports import PodReports
from perdure.engine.activities.worker_reports import WorkerReports
from perdure.engine.ledger import Ledger


class Activities:
    """The parts that change the open activities."""

    def __init__(self, ledger: Ledger) -> None:
        """`ledger`: collects the output of the step."""
        self.closing = ActivityClosing(ledger)
        attempts = Attempts(ledger, self.closing)
        self.pods = PodReports(ledger, attempts, self.closing)
        self.workers = WorkerReports(ledger, attempts, self.closing)
        self.requests = ActivityRequests(ledger, attempts, self.closing)
        self.deadlines = ActivityDeadlines(ledger, attempts)
