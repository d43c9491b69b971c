"""Report objects that cannot be decoded. They are skipped, which affects only their owners."""

import structlog

from perdure.api.reasons import EventReason
from perdure.kube.decoding import Undecodable
from perdure.kube.events import Recorder
from perdure.observe import metrics

_REMEMBERED = 1_000


class Undecoded:
    """Reports each version of an object once."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._reported: dict[tuple[str, str], None] = {}
        self._log = structlog.get_logger("perdure.decoding")

    def report(self, found: Undecodable) -> None:
        """Log and count an object, and record an Event if its metadata is readable."""
        stored = found.stored
        if stored is not None:
            if (stored.uid, stored.version) in self._reported:
                return
            self._reported[stored.uid, stored.version] = None
            if len(self._reported) > _REMEMBERED:
                del self._reported[next(iter(self._reported))]
        metrics.UNDECODABLE.labels(kind=found.kind).inc()
        self._log.warning(
            "Skipped an object that cannot be decoded",
            kind=found.kind,
            namespace=stored.namespace if stored else None,
            name=stored.name if stored else None,
            problem=found.problem,
        )
        if stored is None:
            return
        self._recorder.record(
            {
                "apiVersion": found.api_version,
                "kind": found.kind,
                "metadata": {"namespace": stored.namespace, "name": stored.name, "uid": stored.uid},
            },
            kind="Warning",
            reason=EventReason.UNREADABLE,
            note=f"The operator cannot decode this {found.kind} and skips it: {found.problem}. Delete it, or shorten its values.",
            action="Decode",
        )
