"""Why an attempt has no pod, or no Lease."""

from perdure.engine.failures import Failure

REFUSED = frozenset({400, 403, 422})
"""Status codes of permanently rejected requests."""


class AttemptBlockedError(Exception):
    """The pod of the attempt cannot be created for now; a retry may help."""

    lacks = "no pod for attempt {} yet"


class LeaseBlockedError(AttemptBlockedError):
    """The attempt has its pod, but its Lease cannot be created for now; a retry may help."""

    lacks = "no Lease for attempt {} yet, so its heartbeats and large results are not received"


class AttemptImpossibleError(Exception):
    """The pod of the attempt can never be created, so the activity fails with `failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
