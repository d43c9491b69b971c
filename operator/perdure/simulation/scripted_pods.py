"""The kubelet of a simulation: pods start, heartbeat and end as the entries of the scenario define."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import orjson

from perdure.api import labels
from perdure.api.times import write_micro_time
from perdure.runtime.pods import payloads
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.kubelet import ContainerExit, Kubelet
from perdure.simulation.cluster.loop import VirtualLoop
from perdure.simulation.cluster.object_store import Write
from perdure.simulation.cluster.storage import Object, ObjectKey
from perdure.simulation.scenario import ScriptedAttempt
from perdure.simulation.script import Beats, ScriptedEntries, beats, exit_code

_SILENT = ScriptedAttempt()
_FOR_EVER = timedelta(days=36_525)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """An attempt whose pod was created."""

    run_id: str
    event_id: int
    number: int
    after: timedelta
    """The time until it starts."""


@dataclass(slots=True)
class _Playing:
    """A pod and its entry."""

    entry: ScriptedAttempt
    beats: Beats | None = None
    cancelled: bool = False


class ScriptedKubelet(Kubelet):
    """Runs every pod for exactly the time in the scenario."""

    def __init__(
        self,
        loop: VirtualLoop,
        server: ApiServer,
        script: ScriptedEntries[ScriptedAttempt],
        on_start: Callable[[Started], None],
    ) -> None:
        super().__init__(loop, server, self._ending)
        self._activities = script
        self._on_start = on_start
        self._playing: dict[str, _Playing] = {}
        server.observers.append(self._leases)

    def stamp(self) -> str:
        """The current time, to the microsecond."""
        return write_micro_time(self._loop.now())

    def start_seconds(self, pod: Object) -> float:
        """The time in the entry, which is selected here: attempts use entries in the order of their creation."""
        meta = pod["metadata"]
        given = orjson.loads(meta["annotations"][labels.INPUT_ANNOTATION])
        entry = self._activities.next(meta["labels"][labels.ACTIVITY_LABEL], given) or _SILENT
        self._playing[meta["uid"]] = _Playing(entry)
        self._on_start(
            Started(
                run_id=meta["labels"][labels.RUN_ID_LABEL],
                event_id=int(meta["annotations"][labels.SCHEDULED_EVENT_ANNOTATION]),
                number=int(meta["annotations"][labels.ATTEMPT_ANNOTATION]),
                after=entry.starts_after,
            )
        )
        return entry.starts_after.total_seconds()

    def stop_seconds(self, pod: Object) -> float:
        """Return the grace period if the entry ignores cancellation, otherwise 0."""
        playing = self._playing[pod["metadata"]["uid"]]
        return float(pod["metadata"]["deletionGracePeriodSeconds"]) if playing.entry.ignores_cancel else 0.0

    def artifacts(self, pod: Object) -> Mapping[str, int] | None:
        """As the entry says."""
        return self._playing[pod["metadata"]["uid"]].entry.artifacts

    def _ending(self, pod: Object) -> ContainerExit:
        entry = self._playing[pod["metadata"]["uid"]].entry
        after = None if entry.hang else entry.after.total_seconds()
        code = exit_code(entry)
        if entry.fail:
            return ContainerExit(after=after, code=code, message=json.dumps({"error": entry.fail.dump()}))
        return ContainerExit(after=after, code=code, message="" if code else payloads.encode(entry.output))

    def ended(self, key: ObjectKey, uid: str, ending: ContainerExit) -> None:
        """End the pod, because its container ended by itself or its node is lost."""
        if self._playing[uid].entry.lost:
            self._stopped.add(uid)
            self._server.remove(key, actor="garbage collector of pods")
            return
        lease = ObjectKey("leases", key.namespace, key.name)
        if (
            ending.code == 0
            and lease in self._server.objects
            and len(ending.message) > payloads.TERMINATION_MESSAGE_LIMIT
        ):
            self._server.update(lease, lambda obj: _note(obj, labels.RESULT_ANNOTATION, ending.message), actor="pod")
            ending = ContainerExit(after=ending.after, message="")
        super().ended(key, uid, ending)

    def beat(self, key: ObjectKey, uid: str) -> None:
        """Do nothing: the heartbeats of a pod begin with its Lease."""

    def _leases(self, write: Write) -> None:
        if write.key.plural != "leases" or write.type == "DELETED":
            return
        pod = self._server.objects.get(ObjectKey("pods", write.key.namespace, write.key.name))
        playing = self._playing.get(pod["metadata"]["uid"]) if pod else None
        if pod is None or playing is None:
            return
        if (
            labels.CANCEL_REQUESTED_ANNOTATION in (write.after["metadata"].get("annotations") or {})
            and not playing.cancelled
        ):
            playing.cancelled = True
            if not playing.entry.ignores_cancel:
                scripted = playing.beats if playing.entry.heartbeats else None
                when = (scripted.next(self._loop.now()) if scripted else None) or self._loop.now()
                after = (when - self._loop.now()).total_seconds()
                self._loop.call_later(after, self._cancel, ObjectKey("pods", *write.key[1:]), pod["metadata"]["uid"])
        if write.type == "ADDED" and (seconds := write.after["spec"].get("leaseDurationSeconds")):
            self._begin_to_beat(write.key, timedelta(seconds=seconds), playing)

    def _begin_to_beat(self, key: ObjectKey, timeout: timedelta, playing: _Playing) -> None:
        """Set the last timely renewal of the Lease now, and its details at the first heartbeat."""
        start = self._loop.now() + playing.entry.starts_after
        beating = playing.beats = beats(playing.entry, start, timeout)
        silent = beating.silence(timeout)
        last = silent - timeout if silent is not None else start + _FOR_EVER
        if last > start:
            renewed = write_micro_time(last)
            self._loop.call_soon(self._change, key, lambda obj: obj["spec"].update(renewTime=renewed))
        if beating.details is not None and beating.count != 0:
            details = payloads.encode(beating.details)
            first = (start + beating.every - self._loop.now()).total_seconds()
            self._loop.call_later(
                first, self._change, key, lambda obj: _note(obj, labels.HEARTBEAT_DETAILS_ANNOTATION, details)
            )

    def _change(self, key: ObjectKey, change: Callable[[Object], None]) -> None:
        self._server.update(key, change, actor="pod")

    def _cancel(self, key: ObjectKey, uid: str) -> None:
        if self.live(key, uid):
            self.finish(key, uid, 143, json.dumps({"error": {"cancelled": True}}))


def _note(obj: Object, name: str, value: Any) -> None:
    obj["metadata"].setdefault("annotations", {})[name] = value
