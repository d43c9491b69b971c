"""A scripted kubelet for all nodes: pods start, heartbeat, and end as the scenario defines; deleted pods stop."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from perdure.api import labels
from perdure.api.names import LOG_ARTIFACT, RESULT_ARTIFACT, artifact_folder, log_key
from perdure.api.pods import OUTPUTS
from perdure.runtime.pods import payloads
from perdure.simulation.cluster.apiserver import ApiServer
from perdure.simulation.cluster.loop import ClusterLoop
from perdure.simulation.cluster.store import Object, ObjectKey, Write

_KILLED: Final = 143
"""Exit code of a container that ended on SIGTERM."""
_GRACE: Final = 30
"""The default grace period of Kubernetes, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerExit:
    """How a pod's container ends."""

    after: float | None
    """Seconds from its start; None: it never ends by itself."""
    code: int = 0
    message: str = '"ok"'
    """The termination message: its result, or its failure."""


Script = Callable[[Object], ContainerExit]
"""Returns how a pod ends; called once for each pod, when it starts."""


class Kubelet:
    """Runs every pod, and counts the starts by run and name."""

    def __init__(self, loop: ClusterLoop, server: ApiServer, script: Script) -> None:
        self._loop = loop
        self._server = server
        self._script = script
        self._stopped: set[str] = set()
        server.observers.append(self._observe, "pods")

    def _observe(self, write: Write) -> None:
        uid = write.after["metadata"]["uid"]
        if write.type == "ADDED":
            self._loop.call_later(self.start_seconds(write.after), self._start, write.key, uid)
        elif write.type == "MODIFIED" and write.before is not None and uid not in self._stopped:
            if _is_deleted(write.after) and not _is_deleted(write.before):
                self._loop.call_later(self.stop_seconds(write.after), self._stop, write.key, uid)
            elif _is_past_deadline(write.after) and not _is_past_deadline(write.before):
                self._loop.call_later(self.stop_seconds(write.after), self._stop_at_deadline, write.key, uid)

    def start_seconds(self, pod: Object) -> float:  # noqa: ARG002 - subclasses derive it from the pod
        """The time from the creation of a pod to its start, in seconds."""
        return 0.0

    def ready_seconds(self, pod: Object) -> float:  # noqa: ARG002 - as above
        """The time from the start of a service until it is ready, in seconds."""
        return 0.0

    def stop_seconds(self, pod: Object) -> float:  # noqa: ARG002 - as above
        """The time that a pod takes to stop when it was deleted or has reached its deadline, in seconds."""
        return 0.0

    def stopped(self, pod: Object) -> ContainerExit:  # noqa: ARG002 - as above
        """How the container of a pod ends when it gets SIGTERM."""
        return ContainerExit(after=0, code=_KILLED, message="")

    def artifacts(self, pod: Object) -> Mapping[str, int] | None:  # noqa: ARG002 - as above
        """The output artifacts that a pod leaves, with their bytes; None: all that its activity has."""
        return None

    def live(self, key: ObjectKey, uid: str) -> Object | None:
        """The pod, if it still has this UID and its containers have not ended."""
        pod = self._server.objects.get(key)
        return pod if pod and pod["metadata"]["uid"] == uid and uid not in self._stopped else None

    def _start(self, key: ObjectKey, uid: str) -> None:
        pod = self.live(key, uid)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        started = self.stamp()

        def run(obj: Object) -> None:
            obj["spec"]["nodeName"] = "node"
            states = _containers(obj, {"running": {"startedAt": started}})
            obj["status"] = {"phase": "Running", "startTime": started, "containerStatuses": states}

        self._server.update(key, run, actor="kubelet")
        if labels.SERVICE_LABEL in pod["metadata"]["labels"]:
            self._loop.call_later(self.ready_seconds(pod), self._make_ready, key, uid)
        ending = self._script(pod)
        if ending.after is not None:
            self._loop.call_later(ending.after, self._end, key, uid, ending)
        self.beat(key, uid)

    def _make_ready(self, key: ObjectKey, uid: str) -> None:
        """Report that the readiness probe of a service has succeeded."""
        if self.live(key, uid) is None:
            return

        def ready(obj: Object) -> None:
            obj["status"]["podIP"] = "10.0.0.1"
            obj["status"]["conditions"] = [{"type": "Ready", "status": "True"}]

        self._server.update(key, ready, actor="kubelet")

    def beat(self, key: ObjectKey, uid: str) -> None:
        """Renew the pod's Lease, if it has one that needs renewal, until the container ends."""
        if self.live(key, uid) is None:
            return
        lease = self._server.objects.get(ObjectKey("leases", key.namespace, key.name))
        seconds = lease["spec"].get("leaseDurationSeconds") if lease else 1.0
        if lease is not None and seconds:
            renewed = self._loop.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            where = ObjectKey("leases", key.namespace, key.name)
            self._server.update(where, lambda obj: obj["spec"].update(renewTime=renewed), actor="pod")
        if seconds:
            self._loop.call_later(seconds / 3, self.beat, key, uid)

    def _end(self, key: ObjectKey, uid: str, ending: ContainerExit) -> None:
        pod = self.live(key, uid)
        if pod is not None:
            self.ended(key, uid, ending)

    def ended(self, key: ObjectKey, uid: str, ending: ContainerExit) -> None:
        """End the pod, because its container ended by itself."""
        self.finish(key, uid, ending.code, ending.message)

    def _stop(self, key: ObjectKey, uid: str) -> None:
        """Stop the containers of a deleted pod, and remove the pod unless a finalizer keeps it."""
        pod = self.live(key, uid)
        if pod is not None and pod["status"]["phase"] == "Running":
            ending = self.stopped(pod)
            self.finish(key, uid, ending.code, ending.message)
        pod = self._server.objects.get(key)
        if pod is not None and pod["metadata"]["uid"] == uid:
            self._stopped.add(uid)
            self._server.delete(key, actor="kubelet", grace=0)

    def _stop_at_deadline(self, key: ObjectKey, uid: str) -> None:
        """Stop the containers of a pod, which stays."""
        pod = self.live(key, uid)
        if pod is not None and pod["status"]["phase"] == "Running":
            ending = self.stopped(pod)
            self.finish(key, uid, ending.code, ending.message, at_deadline=True)

    def finish(self, key: ObjectKey, uid: str, code: int, message: str, *, at_deadline: bool = False) -> None:
        """Record that the containers of a pod have ended."""
        self._stopped.add(uid)
        finished = self.stamp()

        def end_all(obj: Object) -> None:
            status = obj["status"]
            end = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message}
            end |= {"startedAt": status["startTime"], "finishedAt": finished}
            status["phase"] = "Failed" if code or at_deadline else "Succeeded"
            if at_deadline:
                status["reason"] = "DeadlineExceeded"
            status["containerStatuses"] = _containers(obj, {"terminated": end})
            times = {key: end[key] for key in ("startedAt", "finishedAt")}
            upload = None if code else upload_status(obj, self.artifacts(obj), message, times)
            if upload is not None:
                status["initContainerStatuses"] = [upload]

        self._server.update(key, end_all, actor="kubelet")

    def stamp(self) -> str:
        """The current time as kubelets write it, in whole seconds."""
        return self._loop.now().strftime("%Y-%m-%dT%H:%M:%SZ")


def grace_seconds(pod: Object) -> float:
    """How long the containers of a pod that is being stopped may run, in seconds."""
    usual = pod["spec"].get("terminationGracePeriodSeconds", _GRACE)
    return float(pod["metadata"]["deletionGracePeriodSeconds"] if _is_deleted(pod) else usual)


def _is_deleted(pod: Object) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _is_past_deadline(pod: Object) -> bool:
    """Whether a running pod was given a deadline that has passed."""
    return bool(pod["spec"].get("activeDeadlineSeconds") == 1)


def _containers(pod: Object, state: dict[str, Any]) -> list[Object]:
    return [
        {
            "name": each["name"],
            "ready": "running" in state,
            "restartCount": 0,
            "image": "image",
            "imageID": "image",
            "state": state,
        }
        for each in pod["spec"]["containers"]
    ]


# The sidecar of a pod that uploads output artifacts: nothing is stored, and every run gets the same report

_BYTES: Final = 1024


def upload_status(pod: Object, sizes: Mapping[str, int] | None, result: str, times: Mapping[str, Any]) -> Object | None:
    """The status of the sidecar after the container of the activity has succeeded; None if the pod has none.

    Args:
        pod: The pod.
        sizes: The artifacts that exist, with their bytes; None: all that the activity has.
        result: The result of the activity, which is uploaded if it is too large for a termination message.
        times: When it started and finished.
    """
    sidecars = [each for each in pod["spec"].get("initContainers") or () if each["name"] == OUTPUTS]
    if not sidecars:
        return None
    variables = {each["name"]: each.get("value", "") for each in sidecars[0]["env"]}
    wanted = json.loads(variables["PERDURE_OUTPUTS"].replace("$$", "$"))
    found = (
        {each["name"]: _BYTES for each in wanted if each["name"] != RESULT_ARTIFACT} if sizes is None else dict(sizes)
    )
    if len(result.encode()) >= payloads.TERMINATION_MESSAGE_LIMIT:
        found[RESULT_ARTIFACT] = len(result.encode())
    report = _report(pod, wanted, found, kept="PERDURE_KEPT" in variables)
    if "PERDURE_LOG_FOLDER" in variables and "error" not in report and (sizes is None or LOG_ARTIFACT in sizes):
        report["log"] = _log(pod, _BYTES if sizes is None else sizes[LOG_ARTIFACT])
    code = 1 if "error" in report else 0
    message = json.dumps(report)
    end = {"exitCode": code, "reason": "Error" if code else "Completed", "message": message, **times}
    return {
        "name": OUTPUTS,
        "ready": False,
        "restartCount": 0,
        "image": "image",
        "imageID": "image",
        "state": {"terminated": end},
    }


def _log(pod: Object, size: int) -> list[Any]:
    notes, meta = pod["metadata"]["annotations"], pod["metadata"]
    attempt = notes[labels.SCHEDULED_EVENT_ANNOTATION], notes[labels.ATTEMPT_ANNOTATION]
    key = log_key(meta["namespace"], meta["labels"][labels.RUN_ID_LABEL], *attempt)
    return [key, size, hashlib.sha256(key.encode()).hexdigest()]


def _report(pod: Object, wanted: list[dict[str, Any]], found: Mapping[str, int], *, kept: bool) -> dict[str, Any]:
    meta = pod["metadata"]
    notes = meta["annotations"]
    attempt = f"{notes[labels.SCHEDULED_EVENT_ANNOTATION]}-{notes[labels.ATTEMPT_ANNOTATION]}"
    at = f"{artifact_folder(meta['namespace'], meta['labels'][labels.RUN_ID_LABEL], kept=kept)}/{attempt}"
    for each in wanted:
        if each["name"] not in found and not each.get("optional"):
            message = f"artifact `{each['name']}`: the container has ended, and `{each['path']}` does not exist"
            return {"error": {"type": "ArtifactMissing", "message": message}}
    names = [each["name"] for each in wanted if each["name"] in found]
    files = {name: [found[name], hashlib.sha256(f"{at}/{name}".encode()).hexdigest(), "None"] for name in names}
    return {"at": at, "files": files}
