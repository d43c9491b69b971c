"""Why an attempt has no pod, or no Lease."""

from perdure.engine.failures import Failure

REFUSED = frozenset({400, 403, 422})
"""Status codes with which the API server rejects a request, whenever it is repeated."""


class AttemptBlockedError(Exception):
    """The attempt cannot have its pod for now; trying again may help."""

    lacks = "no pod for attempt {} yet"


class LeaseBlockedError(AttemptBlockedError):
    """The attempt has its pod, and cannot have its Lease for now; trying again may help."""

    lacks = "no Lease for attempt {} yet, so its heartbeats and large results are not received"


class AttemptImpossibleError(Exception):
    """The attempt will never have a pod: the activity fails with `failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
