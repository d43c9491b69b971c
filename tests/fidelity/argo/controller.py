"""Argo's own workflow-controller, with stand-ins for its kubelet and its executor.

The controller decides everything about the tasks of a workflow: which run, with what input, and what their ends mean. No
container runs: the player writes the statuses of pods and the results of the executor as `Outcome` says.

Pods end one at a time, in the order of a clock that only they move: a pod that runs for 5 s ends 5 s after the pod that its
start followed. The next one ends when the controller has nothing more to do. Only the waits of the controller itself, for the
deadline of a workflow and between attempts, take real time.
"""

import json
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Final, Protocol, TypeVar

import yaml

from cluster import gobuild
from fidelity.controllers import Api, Play, Player, running
from perdure.kube import clock

Json = dict[str, Any]

_NAMESPACE: Final = "argo"
_GROUP: Final = f"/apis/argoproj.io/v1alpha1/namespaces/{_NAMESPACE}"
_PODS: Final = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_NODE: Final = "workflows.argoproj.io/node-id"
_WORKFLOW: Final = "workflows.argoproj.io/workflow"
_REPORTED: Final = "workflows.argoproj.io/report-outputs-completed"
_QUIET: Final = 0.6
"""How long nothing must change until the controller has nothing more to do, in seconds."""
_DONE: Final = frozenset({"Succeeded", "Failed", "Error"})
_NEVER: Final = "0001-01-01T00:00:00Z"
_STOPPED: Final = 143
"""The exit code of a container that the kubelet stops."""
_ADDRESS: Final = "10.0.0.1"
"""The address of each pod."""
_IMAGES: Final = (
    *("alpine", "alpine:3.23", "alpine/git:v2.26.2", "argoproj/argosay:v2", "debian", "golang:1.18", "influxdb:1.2"),
    *("nginx:1.13", "remuslazar/gnuplot", "ubuntu"),
)
"""Images whose containers have no command: the controller would look for it in their registries."""
_STORE: Final = {
    "bucket": "artifacts",
    "endpoint": "store:9000",
    "accessKeySecret": {"name": "store", "key": "user"},
    "secretKeySecret": {"name": "store", "key": "password"},
}
"""The artifact repository. Nothing is stored there: no container runs."""


@dataclass(frozen=True)
class Outcome:
    """How one attempt of a container ends."""

    milliseconds: int
    """How long it runs."""
    code: int = 0
    """Its exit code."""
    hangs: bool = False
    """Whether it never ends by itself."""
    printed: str | None = None
    """Its stdout, if a task reads it."""
    files: Mapping[str, str] = field(default_factory=dict)
    """What it writes for its output parameters, by their names."""


class Case(Protocol):
    """A workflow, and what its containers do."""

    @property
    def manifest(self) -> Json:
        """The Workflow."""

    def outcome(self, template: str, values: Mapping[str, str], attempt: int, /) -> Outcome:
        """Return how an attempt ends.

        Args:
            template: The name of the template.
            values: Its input parameters.
            attempt: Its number, from 1, among those with the same template and values.
        """


def create(api: Api, manifest: Json) -> None:
    """Create an object of Argo, or a ConfigMap."""
    plural = f"{manifest['kind'].lower()}s"
    cluster = f"/apis/argoproj.io/v1alpha1/{plural}"
    of_argo = cluster if manifest["kind"].startswith("Cluster") else f"{_GROUP}/{plural}"
    core = f"/api/v1/namespaces/{_NAMESPACE}/{plural}"
    metadata = {key: value for key, value in manifest["metadata"].items() if key != "namespace"}
    api.request("POST", core if manifest["apiVersion"] == "v1" else of_argo, {**manifest, "metadata": metadata})


def argo() -> AbstractContextManager[Api]:
    """Run a control plane with Argo's controller."""
    flags = ("--namespaced", f"--namespace={_NAMESPACE}", "--executor-image=executor", "--loglevel=warn")
    return running(
        gobuild.ARGO,
        "workflow-controller",
        install=_install,
        flags=(*flags, "--qps=1000", "--burst=2000"),
        environment={"LEADER_ELECTION_DISABLE": "true", "DEFAULT_REQUEUE_TIME": "100ms"},
    )


def _install(api: Api) -> None:
    """Create the CRDs of Argo and its configuration."""
    crds = gobuild.module_folder(gobuild.ARGO) / "manifests/base/crds/minimal"
    for file in sorted(crds.glob("argoproj.io_*.yaml")):
        api.define(yaml.safe_load(file.read_text()))
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
    repository = json.dumps({"s3": _STORE})
    images = json.dumps({each: {"entrypoint": ["start"]} for each in _IMAGES})
    data = {"artifactRepository": repository, "images": images}
    config = {"metadata": {"name": "workflow-controller-configmap"}, "data": data}
    space = f"/api/v1/namespaces/{_NAMESPACE}"
    api.request("POST", f"{space}/configmaps", config)
    api.request("POST", f"{space}/serviceaccounts", {"metadata": {"name": "default"}})
    token = {"metadata": {"name": "default.service-account-token"}, "data": {}}  # of the pod that sends HTTP requests
    api.request("POST", f"{space}/secrets", token)


@dataclass(frozen=True)
class PlayedAttempt:
    """An attempt of a container."""

    template: str
    input: Mapping[str, str]
    outcome: Outcome
    daemon: bool = False
    """Whether it runs until the template that has started it ends."""


@dataclass
class Played:
    """How a workflow went on Argo."""

    workflow: Json
    """The object, after its end."""
    attempts: list[PlayedAttempt]
    stuck: bool = False
    late: bool = False
    """Whether this machine was too slow, so that the deadline of the workflow passed while it had more to do."""


@dataclass
class _Pod:
    name: str
    node: str
    attempt: PlayedAttempt
    ends: float
    """When it ends, on the clock of its workflow."""
    by_deadline: bool
    limit: float | None
    """When the kubelet ends it, on the clock of the machine."""
    template: Json


@dataclass
class _Play(Play):
    """The pods of one workflow, and its clock."""

    case: Case
    workflow: Json = field(default_factory=dict)
    tasks: Json = field(default_factory=dict)
    """The requests that the controller wants to be sent."""
    created: dict[str, Json] = field(default_factory=dict)
    """Pods whose nodes are not known yet, by their names: the controller writes the status of the workflow after it."""
    pods: dict[str, _Pod] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    """The nodes whose pods have ended."""
    attempts: list[PlayedAttempt] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)
    late: bool | None = None
    """Whether the workflow had more to do than to wait at its deadline; None before the deadline, and without one."""

    @property
    def _nodes(self) -> Json:
        return (self.workflow.get("status") or {}).get("nodes") or {}

    def observe(self, kind: str, change: Json) -> None:
        """Take a change of the workflow, of its requests, or of one of its pods."""
        found = change["object"]
        match kind, change["type"]:
            case "workflow", "ADDED" | "MODIFIED":
                self._observe(found)
            case "tasks", "ADDED" | "MODIFIED":
                self.tasks = found
                self._serve()
            case "pod", "DELETED":
                self.pods.pop(found["metadata"]["name"], None)
                self.created.pop(found["metadata"]["name"], None)
            case "pod", "ADDED":
                self._create(found)

    def _observe(self, workflow: Json) -> None:
        """Take a new status of the workflow, and start the pods whose nodes it has."""
        self.workflow = workflow
        self.changed = time.monotonic()
        for name, pod in list(self.created.items()):
            if pod["metadata"]["annotations"][_NODE] in self._nodes:
                self._start(self.created.pop(name))
        self._serve()

    def _create(self, pod: Json) -> None:
        """Take a pod that the controller has created, and start it if its node is known."""
        node = pod["metadata"]["annotations"].get(_NODE)
        if node is None or node in self.ended or any(each.node == node for each in self.pods.values()):
            return
        self.changed = time.monotonic()
        if node in self._nodes:
            self._start(pod)
        else:
            self.created[pod["metadata"]["name"]] = pod

    def _start(self, pod: Json) -> None:
        self.changed = time.monotonic()
        name, id_ = pod["metadata"]["name"], pod["metadata"]["annotations"][_NODE]
        template, node = _template(pod), self._nodes[id_]
        daemon = bool(template.get("daemon"))
        attempt = self._attempt(node, daemon=daemon)
        outcome = attempt.outcome
        begins = self.now + self._backoff(id_)
        limit = self.case.manifest["spec"].get("activeDeadlineSeconds")
        deadline = float("inf") if limit else _deadline(pod, node)  # with both, the first one decides
        runs = float("inf") if outcome.hangs or daemon else outcome.milliseconds / 1000
        self.pods[name] = _Pod(
            name,
            id_,
            attempt,
            begins + min(runs, deadline),
            outcome.hangs or runs > deadline,
            None if limit is None else self.began + limit + 1.5,
            template,
        )
        with suppress(AssertionError):  # the controller has deleted it
            self.api.request("PATCH", f"{_PODS}/{name}/status", _status(pod, "running"), patch="merge-patch")

    def _attempt(self, node: Json, *, daemon: bool = False) -> PlayedAttempt:
        """Return an attempt of a template, which begins now."""
        template = str(node.get("templateName") or (node.get("templateRef") or {}).get("template") or _step(node))
        parameters = (node.get("inputs") or {}).get("parameters") or []
        values = {str(each["name"]): str(each.get("value", "")) for each in parameters}
        key = f"{template}/{values}"  # as the simulator counts the attempts
        self.counts[key] += 1
        outcome = self.case.outcome(template, values, self.counts[key])
        attempt = PlayedAttempt(template, values, outcome, daemon)
        self.attempts.append(attempt)
        return attempt

    def _backoff(self, node: str) -> float:
        """Return how long the controller has waited before this attempt."""
        nodes = self._nodes.values()
        parent = next(
            (each for each in nodes if each.get("type") == "Retry" and node in each.get("children", [])), None
        )
        if parent is None:
            return 0.0
        templates = self.case.manifest["spec"].get("templates") or []
        template = next((each for each in templates if each["name"] == parent.get("templateName")), {})
        backoff = (template.get("retryStrategy") or {}).get("backoff")
        number = parent["children"].index(node)
        return 0.0 if not backoff or not number else float(int(backoff.get("factor", 1)) ** (number - 1))

    @property
    def over(self) -> bool:
        """Whether the workflow has ended."""
        return (self.workflow.get("status") or {}).get("phase") in _DONE

    @property
    def waits(self) -> bool:
        """Whether no pod runs but daemons."""
        return bool(self.workflow) and all(each.attempt.daemon for each in self.pods.values())

    def observe_deadline(self) -> None:
        """See whether the workflow only waits for containers that hang when its deadline passes."""
        limit = self.case.manifest["spec"].get("activeDeadlineSeconds")
        if limit and self.late is None and time.monotonic() > self.began + limit:
            hang = bool(self.pods) and all(each.by_deadline for each in self.pods.values())
            self.late = not hang or time.monotonic() - self.changed < _QUIET

    def advance(self) -> None:
        """End the next pod, if the controller has nothing to do; if no pod runs, resume a task that is suspended."""
        self.observe_deadline()
        if time.monotonic() - self.changed < _QUIET or self.created:
            return
        nodes = self._nodes
        if any(nodes.get(node, {}).get("phase") not in {*_DONE, "Skipped"} for node in self.ended):
            return  # it has not seen an end yet
        started = {each.node for each in self.pods.values()}
        for each in nodes.values():
            waits = (each.get("synchronizationStatus") or {}).get("waiting")
            if waits or each["phase"] not in {"Pending", "Running"}:
                continue
            if each["type"] == "Pod" and each["id"] not in started | self.ended:
                return  # it is about to create a pod
            if each["type"] == "Retry":
                children = [nodes.get(child) for child in each.get("children", [])]
                if all(child is None or child["phase"] in _DONE for child in children):
                    return  # it waits before the next attempt
        running = [each for each in self.pods.values() if not each.attempt.daemon]
        if not running:
            self._resume()
            return
        pod = min(running, key=lambda each: each.ends)
        if pod.ends == float("inf"):
            pod = min(running, key=lambda each: each.limit or float("inf"))
            if pod.limit is None or time.monotonic() < pod.limit:
                return
        else:
            self.now = max(self.now, pod.ends)
        self._end(pod)

    def _resume(self) -> None:
        """Resume the tasks that are suspended, as users do."""
        nodes: Json = {}
        for id_, node in self._nodes.items():
            if node["type"] != "Suspend" or node["phase"] != "Running":
                continue
            template = self._suspended(node)
            if (template.get("suspend") or {}).get("duration"):
                continue  # the controller does
            declared = (template.get("outputs") or {}).get("parameters") or []
            files = self.case.outcome(str(node.get("templateName")), {}, 1).files
            outputs = [{**each, "value": files[each["name"]]} for each in declared if each["name"] in files]
            finished = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
            nodes[id_] = {"phase": "Succeeded", "finishedAt": finished, "outputs": {"parameters": outputs}}
        if nodes:
            self.changed = time.monotonic()
            path = f"{_GROUP}/workflows/{self.case.manifest['metadata']['name']}"
            self.api.request("PATCH", path, {"status": {"nodes": nodes}}, patch="merge-patch")

    def _suspended(self, node: Json) -> Json:
        """Return the template of a task that is suspended."""
        stored = list(((self.workflow.get("status") or {}).get("storedTemplates") or {}).values())
        templates = [*(self.case.manifest["spec"].get("templates") or []), *stored]
        found: Json = next((each for each in templates if each.get("name") == node.get("templateName")), {})
        return found

    def _serve(self) -> None:
        """Send the requests of `http` templates whose nodes are known, as Argo's agent does."""
        served = (self.tasks.get("status") or {}).get("nodes") or {}
        for id_ in (self.tasks.get("spec") or {}).get("tasks") or {}:
            if id_ in served or id_ in self.ended or id_ not in self._nodes:
                continue
            self.ended.add(id_)
            self.changed = time.monotonic()
            outcome = self._attempt(self._nodes[id_]).outcome
            result: Json = {"phase": "Failed" if outcome.code else "Succeeded"}
            if outcome.printed is not None:
                result["outputs"] = {"result": outcome.printed}
            path = f"{_GROUP}/workflowtasksets/{self.tasks['metadata']['name']}/status"
            self.api.request("PATCH", path, {"status": {"nodes": {id_: result}}}, patch="merge-patch")

    def _end(self, pod: _Pod) -> None:
        del self.pods[pod.name]
        self.ended.add(pod.node)
        self.changed = time.monotonic()
        outcome = pod.attempt.outcome
        declared = (pod.template.get("outputs") or {}).get("parameters") or []
        defaults = {each["name"]: (each.get("valueFrom") or {}).get("default") for each in declared}
        values = {name: outcome.files.get(name, default) for name, default in defaults.items()}
        written = {name: value for name, value in values.items() if value is not None}
        outputs: Json = {}
        if written:
            parameters = [each for each in declared if each["name"] in written]
            outputs["parameters"] = [
                {**each, "value": str(written[each["name"]]).removesuffix("\n")} for each in parameters
            ]
        if outcome.printed is not None and not outcome.code and not pod.by_deadline:
            outputs["result"] = outcome.printed
        artifacts = (pod.template.get("outputs") or {}).get("artifacts") or []
        if artifacts and not outcome.code:
            kept = [{key: each[key] for key in ("name", "path", "globalName") if key in each} for each in artifacts]
            outputs["artifacts"] = [{**each, "s3": {"key": f"{pod.name}/{each['name']}"}} for each in kept]
        lost = written.keys() != values.keys()
        self.api.request("POST", f"{_GROUP}/workflowtaskresults", self._result(pod, outputs))
        found = self.api.request("GET", f"{_PODS}/{pod.name}")
        code = _STOPPED if pod.by_deadline else outcome.code
        status = _status(found, "terminated", code, 64 if lost else 0)
        if pod.by_deadline:
            status["status"] |= {
                "phase": "Failed",
                "reason": "DeadlineExceeded",
                "message": "Pod was active on the node longer than the specified deadline",
            }
        self.api.request("PATCH", f"{_PODS}/{pod.name}/status", status, patch="merge-patch")

    def _result(self, pod: _Pod, outputs: Json) -> Json:
        return {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "WorkflowTaskResult",
            "metadata": {
                "name": pod.node,
                "labels": {_WORKFLOW: self.case.manifest["metadata"]["name"], _REPORTED: "true"},
            },
            **({"outputs": outputs} if outputs else {}),
        }


def _deadline(pod: Json, node: Json) -> float:
    """Return how long a pod may run, in seconds: until the kubelet ends it, or the executor, at the `timeout` of its template."""
    of_pod = float(pod["spec"].get("activeDeadlineSeconds") or "inf")
    until = datetime.fromisoformat(_variable(pod, "ARGO_DEADLINE") or _NEVER)
    if until.year == 1:  # the executor has none
        return of_pod
    return min(of_pod, (until - datetime.fromisoformat(node["startedAt"])).total_seconds())


def _variable(pod: Json, name: str) -> str:
    """Return a variable of the executor in a pod."""
    containers = (*pod["spec"].get("initContainers", []), *pod["spec"]["containers"])
    variables = (variable for each in containers for variable in each.get("env", []))
    return next((str(each.get("value", "")) for each in variables if each["name"] == name), "")


def _step(node: Json) -> str:
    """Return the name of the step of a node, without the number of an attempt or of an item."""
    return str(node["displayName"]).partition("(")[0]


def _template(pod: Json) -> Json:
    """Return the template of a pod, as the controller has written it for the executor."""
    found: Json = json.loads(_variable(pod, "ARGO_TEMPLATE"))
    return found


def _status(pod: Json, state: str, code: int = 0, executor: int = 0) -> Json:
    """Return the status of a pod as a kubelet writes it.

    Args:
        pod: The pod.
        state: `running` or `terminated`.
        code: The exit code of the main container.
        executor: The exit code of the executor's container.
    """
    now = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    states = []
    for each in pod["spec"]["containers"]:
        exit_code = executor if each["name"] == "wait" else code
        ended = {
            "exitCode": exit_code,
            "reason": "Error" if exit_code else "Completed",
            "startedAt": now,
            "finishedAt": now,
        }
        running = {"startedAt": now}
        states.append(
            {
                "name": each["name"],
                "ready": state == "running",
                "restartCount": 0,
                "image": each["image"],
                "imageID": each["image"],
                "state": {state: running if state == "running" else ended},
            }
        )
    phase = "Running" if state == "running" else "Failed" if code or executor else "Succeeded"
    return {"status": {"phase": phase, "podIP": _ADDRESS, "startTime": now, "containerStatuses": states}}


_Case = TypeVar("_Case", bound=Case)


class ArgoPlayer(Player[_Case, _Play, Played]):
    """Plays workflows on Argo's controller."""

    parallel: ClassVar[int] = 40
    watched: ClassVar[Mapping[str, str]] = {
        "pod": _PODS,
        "workflow": f"{_GROUP}/workflows",
        "tasks": f"{_GROUP}/workflowtasksets",
    }

    def name(self, case: _Case) -> str:
        """Return the name of the workflow."""
        return str(case.manifest["metadata"]["name"])

    def owner(self, kind: str, found: Json) -> str:
        """Return the name of the workflow of a pod; other objects have it themselves."""
        metadata = found["metadata"]
        return str((metadata.get("labels") or {}).get(_WORKFLOW, "") if kind == "pod" else metadata["name"])

    def begin(self, case: _Case) -> _Play:
        """Return the play of a workflow."""
        return _Play(self.api, case)

    def create(self, case: _Case) -> None:
        """Create the workflow."""
        self.api.request("POST", f"{_GROUP}/workflows", case.manifest)

    def end(self, case: _Case, play: _Play) -> Played:
        """Return how a workflow went, and delete it."""
        play.observe_deadline()
        self.api.delete(f"{_GROUP}/workflows/{self.name(case)}")
        return Played(play.workflow, play.attempts, stuck=not play.over, late=bool(play.late))
