"""Kubernetes Events, which `kubectl describe` shows. Best effort: nothing waits for them or depends on them."""

import asyncio
from collections import OrderedDict, deque
from datetime import datetime

import structlog

from perdure.api.reasons import ROUTINE_EVENTS, EventReason
from perdure.kube import client as kube
from perdure.kube.clock import now

_LONGEST_NOTE = 1_024
"""In bytes, as in the API server (k8s.io/kubernetes/pkg/apis/events/validation: noteLengthLimit)."""


class Recorder:
    """Posts Events in the background, round-robin by namespace, and drops Events beyond the limit of a namespace."""

    def __init__(self, client: kube.Client, *, instance: str, backlog: int = 1_000, routine: bool = False) -> None:
        """Create a recorder.

        Args:
            client: The client that posts Events.
            instance: Name of this process.
            backlog: How many Events of one namespace may wait.
            routine: Whether to record Events that need no action.
        """
        self._client = client
        self._instance = instance
        self._backlog = backlog
        self._unrecorded = frozenset() if routine else ROUTINE_EVENTS
        self._waiting: OrderedDict[str, deque[kube.Object]] = OrderedDict()
        """Pending Events by namespace; the first namespace is the next one."""
        self._any = asyncio.Event()
        self._dropped = 0
        """Dropped Events since the last log line."""
        self._log = structlog.get_logger("perdure.events")

    def record(
        self,
        about: kube.Object,
        *,
        kind: str,
        reason: EventReason,
        note: str,
        action: str,
        related: kube.Object | None = None,
    ) -> None:
        """Record an Event about an object.

        Args:
            about: The object, with apiVersion, kind and metadata.
            kind: ``Normal`` or ``Warning``.
            reason: The reason of the Event.
            note: A sentence, truncated to 1,024 bytes of UTF-8.
            action: The operator's action, one CamelCase word.
            related: A reference to a related object.
        """
        if reason in self._unrecorded:
            return
        meta = about["metadata"]
        time = now()
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{meta['name'][:230]}.{_stamp(time)}", "namespace": meta["namespace"]},
            "eventTime": time.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": "perdure.dev/operator",
            "reportingInstance": self._instance[:128],
            "action": action,
            "reason": reason.value,
            "type": kind,
            "note": _cut(" ".join(note.split())),
            "regarding": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
            **({"related": related} if related else {}),
        }
        waiting = self._waiting.setdefault(meta["namespace"], deque())
        if len(waiting) < self._backlog:
            waiting.append(body)
            self._any.set()
        else:
            self._dropped += 1

    async def run(self) -> None:
        """Post recorded Events until cancelled."""
        while True:
            await self._any.wait()
            namespace, waiting = self._waiting.popitem(last=False)
            body = waiting.popleft()
            if waiting:
                self._waiting[namespace] = waiting
            if not self._waiting:
                self._any.clear()
            try:
                await self._client.create(kube.path(kube.EVENTS, namespace, "events"), body)
            except kube.RequestError as error:
                self._log.info("Could not post an Event", reason=body["reason"], error=str(error))
            if self._dropped > (self._backlog if self._waiting else 0):
                self._log.warning("Dropped Events: too many were waiting", events=self._dropped)
                self._dropped = 0


def _cut(note: str) -> str:
    """Truncate a note to the limit, at a character boundary."""
    return note.encode(errors="replace")[:_LONGEST_NOTE].decode(errors="ignore")


def _stamp(time: datetime) -> str:
    return format(int(time.timestamp() * 1_000_000), "x")
