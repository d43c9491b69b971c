"""Argo's own workflow-controller, on a control plane without nodes, and what stands in for its kubelet and its executor.

The controller decides everything about the tasks of a workflow: which run, with what input, and what their ends mean. It is the
real one, built from hack/node-image/argo into the project's cache. No container runs: `play` writes the statuses of pods and the
results of the executor as `Outcome` says. So five hundred workflows take minutes, and end in the same way every time.

Pods end one at a time, in the order of a clock that only they move: a pod that runs for 5 s ends 5 s after the pod that its
start followed. The next one ends when the controller has nothing more to do. Only the waits of the controller itself, for the
deadline of a workflow and between attempts, take real time.
"""

import json
import os
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

import urllib3
import yaml

from cluster import commands, gobuild
from cluster.controlplane import control_plane
from cluster.paths import Cache
from cluster.store import locked
from fidelity.argo.workflows import Case, Outcome
from perdure.kube import clock

Json = dict[str, Any]

_NAMESPACE: Final = "argo"
_GROUP: Final = f"/apis/argoproj.io/v1alpha1/namespaces/{_NAMESPACE}"
_PODS: Final = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_NODE: Final = "workflows.argoproj.io/node-id"
_WORKFLOW: Final = "workflows.argoproj.io/workflow"
_REPORTED: Final = "workflows.argoproj.io/report-outputs-completed"
_START_SECONDS: Final = 60.0
_QUIET: Final = 0.6
"""How long nothing must change until the controller has nothing more to do, in seconds."""
_STUCK: Final = 45.0
"""After how long without a change a workflow without running pods is stuck, in seconds."""
_DONE: Final = frozenset({"Succeeded", "Failed", "Error"})


class Api:
    """The API server: requests in JSON."""

    def __init__(self, kubeconfig: Path) -> None:
        """Connect to the server of a kubeconfig."""
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._server: str = cluster["server"]
        self._headers = {"Authorization": f"Bearer {user['token']}", "Content-Type": "application/json"}
        self._pool = urllib3.PoolManager(ca_certs=cluster["certificate-authority"], maxsize=32, retries=False)

    def request(self, method: str, path: str, body: Any = None, *, patch: str = "") -> Json:
        """Send a request, and return the answer.

        Raises:
            AssertionError: The server rejects it.
        """
        headers = {**self._headers, **({"Content-Type": f"application/{patch}+json"} if patch else {})}
        data = None if body is None else json.dumps(body)
        answer = self._pool.request(method, self._server + path, headers=headers, body=data)
        found: Json = json.loads(answer.data)
        assert answer.status < 300, f"{method} {path}: {found.get('message')}"
        return found

    def wait(self, path: str) -> None:
        """Wait until the server serves a collection."""
        deadline = time.monotonic() + _START_SECONDS
        while self._pool.request("GET", self._server + path, headers=self._headers).status != 200:
            assert time.monotonic() < deadline, f"{path} is not served"
            time.sleep(0.1)

    def watch(self, path: str, version: str) -> Iterator[Json]:
        """Yield the changes of the objects of a collection."""
        query = f"{path}?watch=true&resourceVersion={version}"
        answer = self._pool.request("GET", self._server + query, headers=self._headers, preload_content=False)
        rest = b""
        for chunk in answer.stream(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield json.loads(line)


@contextmanager
def argo() -> Iterator[Api]:
    """Run a control plane with Argo's controller."""
    cache = Cache.from_environment(os.environ)
    with locked(cache.locks / f"build-{gobuild.ARGO.name}"):
        program = gobuild.build(cache, gobuild.ARGO) / "workflow-controller"
    crds = gobuild.module_folder(gobuild.ARGO) / "manifests/base/crds/minimal"
    with control_plane(cache, gobuild.KUBERNETES) as kubeconfig, ExitStack() as running:
        api = Api(kubeconfig)
        for file in sorted(crds.glob("argoproj.io_*.yaml")):
            crd = yaml.safe_load(file.read_text())
            api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
            api.wait(f"/apis/argoproj.io/v1alpha1/{crd['spec']['names']['plural']}")
        api.request("POST", "/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
        config = {"metadata": {"name": "workflow-controller-configmap"}, "data": {}}
        api.request("POST", f"/api/v1/namespaces/{_NAMESPACE}/configmaps", config)
        log = running.enter_context((kubeconfig.parent / "workflow-controller.log").open("wb"))
        environment = {"LEADER_ELECTION_DISABLE": "true", "DEFAULT_REQUEUE_TIME": "100ms"}
        flags = (f"--kubeconfig={kubeconfig}", f"--namespace={_NAMESPACE}", "--executor-image=executor", "--qps=1000")
        command = [*commands.DIE_WITH_ME, str(program), "--namespaced", "--burst=2000", "--loglevel=warn", *flags]
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)
        try:
            yield api
        finally:
            process.kill()  # it has nothing to save
            process.wait()


@dataclass(frozen=True)
class PlayedAttempt:
    """An attempt of a container."""

    template: str
    input: dict[str, str]
    outcome: Outcome


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
class _Play:
    """The pods of one workflow, and its clock."""

    case: Case
    api: Api
    now: float = 0.0
    workflow: Json = field(default_factory=dict)
    pods: dict[str, _Pod] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    """The nodes whose pods have ended."""
    attempts: list[PlayedAttempt] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    changed: float = field(default_factory=time.monotonic)
    began: float = field(default_factory=time.monotonic)
    late: bool | None = None
    """Whether the workflow had more to do than to wait at its deadline; None before the deadline, and without one."""

    def start(self, pod: Json) -> None:
        """Start a pod that the controller has created."""
        name, node = pod["metadata"]["name"], pod["metadata"]["annotations"][_NODE]
        if node in self.ended or node in self.pods:
            return
        self.changed = time.monotonic()
        template = _template(pod)
        (main,) = [each for each in pod["spec"]["containers"] if each["name"] == "main"]
        values = {each["name"]: each.get("value", "") for each in main["env"] if each["name"] in {"id", "v"}}
        key = f"{template['name']}/{values}"  # as the simulator counts the attempts
        self.counts[key] += 1
        outcome = self.case.outcome(template["name"], values["id"], self.counts[key])
        attempt = PlayedAttempt(template["name"], values, outcome)
        self.attempts.append(attempt)
        begins = self.now + self._backoff(node)
        limit = self.case.manifest["spec"].get("activeDeadlineSeconds")
        deadline = None if limit else pod["spec"].get("activeDeadlineSeconds")  # with both, the first one decides
        ends = begins + (float(deadline or "inf") if outcome.hangs else outcome.milliseconds / 1000)
        self.pods[name] = _Pod(
            name,
            node,
            attempt,
            ends,
            outcome.hangs,
            None if limit is None else self.began + limit + 1.5,
            template,
        )
        self.api.request("PATCH", f"{_PODS}/{name}/status", _status(pod, "running"), patch="merge-patch")

    def _backoff(self, node: str) -> float:
        """Return how long the controller has waited before this attempt."""
        nodes = (self.workflow.get("status") or {}).get("nodes") or {}
        parent = next(
            (each for each in nodes.values() if each.get("type") == "Retry" and node in each.get("children", [])), None
        )
        if parent is None:
            return 0.0
        template = next(
            (each for each in self.case.manifest["spec"]["templates"] if each["name"] == parent.get("templateName")), {}
        )
        backoff = (template.get("retryStrategy") or {}).get("backoff")
        number = parent["children"].index(node)
        return 0.0 if not backoff or not number else float(backoff.get("factor", 1) ** (number - 1))

    @property
    def over(self) -> bool:
        """Whether the workflow has ended."""
        return (self.workflow.get("status") or {}).get("phase") in _DONE

    @property
    def stuck(self) -> bool:
        """Whether the controller waits for what never comes."""
        return bool(self.workflow) and not self.pods and time.monotonic() - self.changed > _STUCK

    def observe_deadline(self) -> None:
        """See whether the workflow only waits for containers that hang when its deadline passes."""
        limit = self.case.manifest["spec"].get("activeDeadlineSeconds")
        if limit and self.late is None and time.monotonic() > self.began + limit:
            hang = bool(self.pods) and all(each.by_deadline for each in self.pods.values())
            self.late = not hang or time.monotonic() - self.changed < _QUIET

    def advance(self) -> None:
        """End the next pod, if the controller has nothing to do."""
        if time.monotonic() - self.changed < _QUIET or not self.pods:
            return
        nodes = (self.workflow.get("status") or {}).get("nodes") or {}
        if any(nodes.get(node, {}).get("phase") not in {*_DONE, "Skipped"} for node in self.ended):
            return  # it has not seen an end yet
        started = {each.node for each in self.pods.values()}
        for each in nodes.values():
            if each["type"] == "Pod" and each["phase"] in {"Pending", "Running"} and each["id"] not in started:
                return  # it is about to create a pod
            if each["type"] == "Retry" and each["phase"] in {"Pending", "Running"}:
                children = [nodes.get(child) for child in each.get("children", [])]
                if all(child is None or child["phase"] in _DONE for child in children):
                    return  # it waits before the next attempt
        pod = min(self.pods.values(), key=lambda each: each.ends)
        if pod.ends == float("inf"):
            pod = min(self.pods.values(), key=lambda each: each.limit or float("inf"))
            if pod.limit is None or time.monotonic() < pod.limit:
                return
        else:
            self.now = max(self.now, pod.ends)
        self._end(pod)

    def _end(self, pod: _Pod) -> None:
        del self.pods[pod.name]
        self.ended.add(pod.node)
        self.changed = time.monotonic()
        outcome = pod.attempt.outcome
        declared = (pod.template.get("outputs") or {}).get("parameters") or []
        outputs: Json = {}
        if outcome.output is not None:
            if declared:
                outputs["parameters"] = [{**declared[0], "value": outcome.output.removesuffix("\n")}]
            elif not outcome.code and not pod.by_deadline:
                outputs["result"] = outcome.output
        lost = bool(declared) and outcome.output is None
        self.api.request("POST", f"{_GROUP}/workflowtaskresults", self._result(pod, outputs))
        found = self.api.request("GET", f"{_PODS}/{pod.name}")
        status = _status(found, "terminated", outcome.code, 64 if lost else 0)
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


def _template(pod: Json) -> Json:
    """Return the template of a pod, as the controller has written it for the executor."""
    for each in (*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]):
        for variable in each.get("env", []):
            if variable["name"] == "ARGO_TEMPLATE":
                found: Json = json.loads(variable["value"])
                return found
    raise AssertionError("the pod has no template")


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
    return {"status": {"phase": phase, "startTime": now, "containerStatuses": states}}


def play(api: Api, cases: Sequence[Case], *, parallel: int = 40) -> Iterable[tuple[Case, Played]]:
    """Run workflows on Argo's controller, several at a time; yield how each went, in the order of their ends."""
    changes: SimpleQueue[tuple[str, Json]] = SimpleQueue()
    for kind, path in (("pod", _PODS), ("workflow", f"{_GROUP}/workflows")):
        version = api.request("GET", path)["metadata"]["resourceVersion"]
        threading.Thread(target=_follow, args=(api, kind, path, version, changes), daemon=True).start()
    waiting = list(reversed(cases))
    plays: dict[str, _Play] = {}
    while waiting or plays:
        while waiting and len(plays) < parallel:
            case = waiting.pop()
            plays[case.manifest["metadata"]["name"]] = _Play(case, api)
            api.request("POST", f"{_GROUP}/workflows", case.manifest)
        time.sleep(0.02)
        while not changes.empty():
            kind, change = changes.get()
            _apply(plays, kind, change)
        for name, each in list(plays.items()):
            each.observe_deadline()
            if each.over or each.stuck:
                del plays[name]
                yield each.case, Played(each.workflow, each.attempts, stuck=not each.over, late=bool(each.late))
                api.request("DELETE", f"{_GROUP}/workflows/{name}")
            else:
                each.advance()


def _follow(api: Api, kind: str, path: str, version: str, changes: "SimpleQueue[tuple[str, Json]]") -> None:
    with suppress(urllib3.exceptions.HTTPError):  # the server ends first
        for change in api.watch(path, version):
            changes.put((kind, change))


def _apply(plays: dict[str, _Play], kind: str, change: Json) -> None:
    found = change["object"]
    if kind == "workflow":
        playing = plays.get(found["metadata"]["name"])
        if playing is not None and change["type"] != "DELETED":
            playing.workflow = found
            playing.changed = time.monotonic()
        return
    playing = plays.get(found["metadata"]["labels"].get(_WORKFLOW, ""))
    if playing is None:
        return
    if change["type"] == "DELETED":
        playing.pods.pop(found["metadata"]["name"], None)
    elif change["type"] == "ADDED":
        playing.start(found)
