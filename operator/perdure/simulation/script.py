"""The script of a simulation: which entry of the scenario attempts and children follow, and the kubelet that runs pods by it."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

import orjson

from perdure.api import labels
from perdure.api.times import format_decimal_duration, write_micro_time
from perdure.runtime.pods import payloads
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.kubelet import ContainerExit, Kubelet, grace_seconds
from perdure.simulation.cluster.loop import VirtualLoop
from perdure.simulation.cluster.store import Object, ObjectKey, Write
from perdure.simulation.scenario import Reply, ScriptedAttempt, ScriptedChild

_Entry = TypeVar("_Entry", bound=Reply)


class ScriptedEntries(Generic[_Entry]):
    """The entries of a scenario by name, and the number of entries that were used.

    They are counted for each name and input: a retry or a later call with the same input uses the next entry; a call with another
    input starts with the first one.
    """

    def __init__(self, entries: Mapping[str, Sequence[_Entry]]) -> None:
        self._entries = entries
        self._taken: Counter[tuple[str, str]] = Counter()

    def next(self, name: str, value: Any) -> _Entry | None:
        """The entry for the next attempt with a name and an input; None if the scenario has no entry for it."""
        fitting = [
            e for e in self._entries.get(name, ()) if e.when_input is not None and matches_input(value, e.when_input)
        ]
        fitting = fitting or [e for e in self._entries.get(name, ()) if e.when_input is None]
        if not fitting:
            return None
        key = name, json.dumps(value, sort_keys=True, default=str)
        self._taken[key] += 1
        return fitting[min(self._taken[key], len(fitting)) - 1]


def matches_input(actual: Any, expected: Any) -> bool:
    """Whether an input matches an entry: it is equal, or, for objects, equal in the fields that the entry names."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return all(key in actual and matches_input(actual[key], value) for key, value in expected.items())
    return isinstance(actual, bool) == isinstance(expected, bool) and bool(actual == expected)


def scripted_definition(entry: ScriptedChild | None) -> dict[str, Any]:
    """The definition of a Workflow that behaves like an entry for a child; for None, like a child without an entry."""
    takes: dict[str, Any] = {
        "name": "takes",
        "sleep": {"duration": format_decimal_duration(entry.after if entry else timedelta(0))},
    }
    if entry is not None and entry.hang:
        takes = {"name": "hangs", "waitForSignal": {"name": "never"}}
    if entry is not None and entry.fail is not None:
        fields = entry.fail.dump()
        failure: dict[str, Any] = {key: fields[key] for key in ("details", "nonRetryable") if key in fields}
        failure |= {"type": entry.fail.type or "Failed", "message": entry.fail.message or "the scenario lets it fail"}
        ends: dict[str, Any] = {"name": "ends", "fail": failure}
    else:
        ends = {"name": "ends", "return": {"output": entry.output if entry else None}}
    return {"steps": [takes, ends] if entry and (entry.hang or entry.after) else [ends]}


@dataclass(frozen=True, slots=True)
class Beats:
    """The heartbeats of an attempt: their interval and their number."""

    start: datetime
    every: timedelta
    count: int | None
    """The number of heartbeats; None: no limit."""
    details: Any = None

    def last(self, now: datetime) -> datetime | None:
        """The time of the last heartbeat so far."""
        number = (now - self.start) // self.every
        if self.count is not None:
            number = min(number, self.count)
        return self.start + number * self.every if number > 0 else None

    def next(self, now: datetime) -> datetime | None:
        """The time of the next heartbeat; None if there is none."""
        number = (now - self.start) // self.every + 1
        return None if self.count is not None and number > self.count else self.start + number * self.every

    def silence(self, timeout: timedelta) -> datetime | None:
        """When the first gap exceeds a heartbeat timeout, if the attempt keeps running."""
        if self.every > timeout or self.count == 0:
            return self.start + timeout
        return None if self.count is None else self.start + self.count * self.every + timeout


def beats(entry: ScriptedAttempt, start: datetime, timeout: timedelta) -> Beats:
    """The heartbeats of an attempt with a heartbeat timeout: as scripted, otherwise in time, or none if it hangs."""
    if entry.heartbeats:
        return Beats(start, entry.heartbeats.every, entry.heartbeats.count, entry.heartbeats.details)
    return Beats(start, timeout, 0 if entry.hang else None)


def exit_of(entry: ScriptedAttempt) -> ContainerExit:
    """How an attempt's container ends."""
    after = None if entry.hang else entry.after.total_seconds()
    code = entry.exit_code if entry.exit_code is not None else 1 if entry.fail else 0
    if entry.fail:
        return ContainerExit(after=after, code=code, message=json.dumps({"error": entry.fail.dump()}))
    return ContainerExit(after=after, code=code, message="" if code else payloads.encode(entry.output))


_SILENT = ScriptedAttempt()


_FOR_EVER = timedelta(days=36_525)


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedAttempt:
    """An attempt whose pod was created."""

    run_id: str
    event_id: int
    number: int
    after: timedelta
    """The time until it starts."""


@dataclass(slots=True)
class _ScriptedPod:
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
        on_start: Callable[[StartedAttempt], None],
    ) -> None:
        super().__init__(loop, server, self._ending)
        self._activities = script
        self._on_start = on_start
        self._pods: dict[str, _ScriptedPod] = {}
        server.observers.append(self._leases)

    def stamp(self) -> str:
        """The current time, to the microsecond."""
        return write_micro_time(self._loop.now())

    def start_seconds(self, pod: Object) -> float:
        """The time in the entry, which is selected here: attempts use entries in the order of their creation."""
        meta = pod["metadata"]
        activity_input = orjson.loads(meta["annotations"][labels.INPUT_ANNOTATION])
        entry = self._activities.next(meta["labels"][labels.ACTIVITY_LABEL], activity_input) or _SILENT
        self._pods[meta["uid"]] = _ScriptedPod(entry)
        self._on_start(
            StartedAttempt(
                run_id=meta["labels"][labels.RUN_ID_LABEL],
                event_id=int(meta["annotations"][labels.SCHEDULED_EVENT_ANNOTATION]),
                number=int(meta["annotations"][labels.ATTEMPT_ANNOTATION]),
                after=entry.starts_after,
            )
        )
        return entry.starts_after.total_seconds()

    def stop_seconds(self, pod: Object) -> float:
        """Return the grace period if the entry ignores cancellation, otherwise 0."""
        pod_script = self._pods[pod["metadata"]["uid"]]
        return grace_seconds(pod) if pod_script.entry.ignores_cancel else 0.0

    def artifacts(self, pod: Object) -> Mapping[str, int] | None:
        """As the entry says."""
        return self._pods[pod["metadata"]["uid"]].entry.artifacts

    def _ending(self, pod: Object) -> ContainerExit:
        """As the entry says. A service of steps runs until it is stopped, unless the entry says when it ends."""
        entry = self._pods[pod["metadata"]["uid"]].entry
        ending = exit_of(entry)
        runs_on = labels.SERVICE_LABEL in pod["metadata"]["labels"] and not entry.sets("after")
        return replace(ending, after=None) if runs_on else ending

    def stopped(self, pod: Object) -> ContainerExit:
        """As the entry says, if it has the pod deleted; otherwise, by SIGTERM."""
        entry = self._pods[pod["metadata"]["uid"]].entry
        if not entry.disrupted or not any(map(entry.sets, ("output", "fail", "exit_code"))):
            return super().stopped(pod)
        ending = exit_of(entry)
        return replace(ending, message=ending.message if entry.sets("output") or entry.fail else "")

    def ended(self, key: ObjectKey, uid: str, ending: ContainerExit) -> None:
        """End the pod, because its container ended by itself, its node is drained, or its node is lost."""
        if self._pods[uid].entry.disrupted:
            self._server.delete(key, actor="node drain")
            return
        if self._pods[uid].entry.lost:
            self._stopped.add(uid)
            self._server.remove(key, actor="garbage collector of pods")
            return
        lease = ObjectKey("leases", key.namespace, key.name)
        if (
            ending.code == 0
            and lease in self._server.objects
            and len(ending.message) > payloads.TERMINATION_MESSAGE_LIMIT
        ):
            self._server.update(
                lease, lambda obj: _annotate(obj, labels.RESULT_ANNOTATION, ending.message), actor="pod"
            )
            ending = ContainerExit(after=ending.after, message="")
        super().ended(key, uid, ending)

    def beat(self, key: ObjectKey, uid: str) -> None:
        """Do nothing: the heartbeats of a pod begin with its Lease."""

    def _leases(self, write: Write) -> None:
        if write.key.plural != "leases" or write.type == "DELETED":
            return
        pod = self._server.objects.get(ObjectKey("pods", write.key.namespace, write.key.name))
        pod_script = self._pods.get(pod["metadata"]["uid"]) if pod else None
        if pod is None or pod_script is None:
            return
        if (
            labels.CANCEL_REQUESTED_ANNOTATION in (write.after["metadata"].get("annotations") or {})
            and not pod_script.cancelled
        ):
            pod_script.cancelled = True
            if not pod_script.entry.ignores_cancel:
                scripted = pod_script.beats if pod_script.entry.heartbeats else None
                when = (scripted.next(self._loop.now()) if scripted else None) or self._loop.now()
                after = (when - self._loop.now()).total_seconds()
                self._loop.call_later(after, self._cancel, ObjectKey("pods", *write.key[1:]), pod["metadata"]["uid"])
        if write.type == "ADDED" and (seconds := write.after["spec"].get("leaseDurationSeconds")):
            self._begin_to_beat(write.key, timedelta(seconds=seconds), pod_script)

    def _begin_to_beat(self, key: ObjectKey, timeout: timedelta, pod_script: _ScriptedPod) -> None:
        """Set the last timely renewal of the Lease now, and its details at the first heartbeat."""
        start = self._loop.now() + pod_script.entry.starts_after
        beating = pod_script.beats = beats(pod_script.entry, start, timeout)
        silent = beating.silence(timeout)
        last = silent - timeout if silent is not None else start + _FOR_EVER
        if last > start:
            renewed = write_micro_time(last)
            self._loop.call_soon(self._change, key, lambda obj: obj["spec"].update(renewTime=renewed))
        if beating.details is not None and beating.count != 0:
            details = payloads.encode(beating.details)
            first = (start + beating.every - self._loop.now()).total_seconds()
            self._loop.call_later(
                first, self._change, key, lambda obj: _annotate(obj, labels.HEARTBEAT_DETAILS_ANNOTATION, details)
            )

    def _change(self, key: ObjectKey, change: Callable[[Object], None]) -> None:
        self._server.update(key, change, actor="pod")

    def _cancel(self, key: ObjectKey, uid: str) -> None:
        if self.live(key, uid):
            self.finish(key, uid, 143, json.dumps({"error": {"cancelled": True}}))


def _annotate(obj: Object, name: str, value: Any) -> None:
    obj["metadata"].setdefault("annotations", {})[name] = value
