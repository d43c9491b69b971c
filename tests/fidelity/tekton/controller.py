"""Tekton's own controller, with stand-ins for its kubelet and its entrypoint.

The controller decides everything about the tasks of a run: which run, with what parameters, how often, and what their ends mean.
It runs without its webhook: its reconcilers complete and validate specs themselves. No container runs: the player writes the
statuses of pods, with the results that tasks write, as `Outcome` says. Each run has a namespace of its own.

Pods end one at a time, in the order of a clock that only they move. The controller has the clock of the machine: when a limit is
the next thing to pass, the starts of the unfinished runs are moved into the past.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Final, Protocol, TypeVar

import yaml

from cluster import gobuild
from fidelity.controllers import Api, Play, Player, running
from perdure.api.times import parse_duration
from perdure.importing.durations import go_duration
from perdure.kube import clock

Json = dict[str, Any]

_TEKTON: Final = "tekton.dev"
_SYSTEM: Final = "tekton-pipelines"
_RUN: Final = "tekton.dev/taskRun"
_TASK: Final = "tekton.dev/pipelineTask"
_STEP: Final = "step-"
_RESULT: Final = 1
"""The kind of an entry of the termination message that is a result of the task."""
_PLURALS: Final = {"pod": "pods", "pipelinerun": "pipelineruns", "taskrun": "taskruns"}
_QUIET: Final = 0.8
"""How long nothing must change until the controller has nothing more to do, in seconds."""
_LIMIT: Final = 3600.0
"""The limit of a run, and of an attempt of a task, that has none, in seconds."""
_SETTINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "feature-flags": {
        "coschedule": "disabled",
        "enable-api-fields": "alpha",
        "enable-cel-in-whenexpression": "true",
        "enable-param-enum": "true",
        "enable-artifacts": "true",
        "enable-concise-resolver-syntax": "true",
    },
    "config-observability": {"metrics-protocol": "none"},
}
"""What the configuration has apart from the defaults: every feature, and nothing that needs nodes."""
_IMAGES: Final = ("entrypoint", "nop", "sidecarlogresults", "shell", "shell-image-win", "workingdirinit")


@dataclass(frozen=True)
class Outcome:
    """How one attempt of a task ends."""

    seconds: float = 0.0
    """How long it runs."""
    code: int = 0
    """The exit code of its last step."""
    hangs: bool = False
    """Whether it never ends by itself."""
    results: Mapping[str, Any] = field(default_factory=dict)
    """What it writes: texts, lists of texts, and maps of texts."""


class Case(Protocol):
    """A run, and what its tasks do."""

    @property
    def name(self) -> str:
        """Its name, which is also that of its namespace."""

    @property
    def documents(self) -> Sequence[Json]:
        """The PipelineRun or the TaskRun, and what it refers to."""

    def outcome(self, task: str, values: Mapping[str, Any], attempt: int, /) -> Outcome:
        """Return how an attempt ends.

        Args:
            task: The name of the task in its pipeline.
            values: Its parameters.
            attempt: Its number, from 1, among those with the same task and parameters.
        """


def tekton() -> AbstractContextManager[Api]:
    """Run a control plane with Tekton's controller."""
    names = {"CONFIG_LEADERELECTION_NAME": "config-leader-election-controller"}
    names |= {"CONFIG_LOGGING_NAME": "config-logging", "CONFIG_OBSERVABILITY_NAME": "config-observability"}
    names |= {"SYSTEM_NAMESPACE": _SYSTEM, "POD_NAME": "controller", "PROBES_PORT": "0", "PROFILING_PORT": "0"}
    images = [f"--{each}={each}" if each.endswith("win") else f"--{each}-image={each}" for each in _IMAGES]
    flags = ("--disable-ha", "--kube-api-qps=500", "--kube-api-burst=1000", *images)
    return running(gobuild.TEKTON, "controller", install=_install, flags=flags, environment=names)


def _install(api: Api) -> None:
    """Create the CRDs of Tekton, which nothing converts to another version, and its configuration."""
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": _SYSTEM}})
    config = gobuild.module_folder(gobuild.TEKTON) / "config"
    for file in sorted((config / "300-crds").glob("*.yaml")):
        crd = yaml.safe_load(file.read_text())
        crd["spec"].pop("conversion", None)
        api.define(crd)
    for file in sorted(config.glob("config-*.yaml")):
        for each in yaml.safe_load_all(file.read_text()):
            if each and each["kind"] == "ConfigMap":
                name = each["metadata"]["name"]
                data = {**each.get("data", {}), **_SETTINGS.get(name, {})}
                data.pop("_example", None)
                body = {"metadata": {"name": name}, "data": data}
                api.request("POST", f"/api/v1/namespaces/{_SYSTEM}/configmaps", body)


@dataclass(frozen=True)
class PlayedAttempt:
    """An attempt of a task."""

    task: str
    input: Mapping[str, Any]
    number: int
    """Its number among those of its run, from 1."""


@dataclass
class Played:
    """How a run went on Tekton."""

    run: Json
    """The object, after its end."""
    attempts: list[PlayedAttempt]
    elapsed: float
    """How long it took, in seconds."""
    stuck: bool = False


@dataclass
class _Pod:
    name: str
    run: str
    """The name of its TaskRun."""
    outcome: Outcome
    ends: float
    """When it ends, on the clock of its run."""


@dataclass
class _Play(Play):
    """The pods of one run, and its clock."""

    case: Case
    runs: dict[str, Json] = field(default_factory=dict)
    """Its PipelineRuns and TaskRuns, by kind and name."""
    starts: dict[str, float] = field(default_factory=dict)
    """When they started, on its clock."""
    pods: dict[str, _Pod] = field(default_factory=dict)
    created: dict[str, Json] = field(default_factory=dict)
    """Pods that have not started."""
    seen: set[str] = field(default_factory=set)
    passed: set[tuple[str, float]] = field(default_factory=set)
    """The limits that have passed."""
    attempts: list[PlayedAttempt] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def main(self) -> Json:
        """The run itself."""
        run = self.case.documents[0]
        return self.runs.get(f"{run['kind'].lower()}/{run['metadata']['name']}", {})

    @property
    def over(self) -> bool:
        """Whether the run has ended."""
        return _is_done(self.main)

    @property
    def waits(self) -> bool:
        """Whether no pod runs."""
        return not self.pods

    def observe(self, kind: str, change: Json) -> None:
        """Take a change."""
        found = change["object"]
        name = found["metadata"]["name"]
        key = f"{kind}/{name}"
        if kind == "pod" or key not in self.runs or _progress(found) != _progress(self.runs[key]):
            self.changed = time.monotonic()
        if kind == "pod":
            if change["type"] == "DELETED":
                self.pods.pop(name, None)
                self.created.pop(name, None)
            elif name not in self.seen:
                self.seen.add(name)
                self.created[name] = found
            return
        self.runs[key] = found
        status = found.get("status") or {}
        for part in ("startTime", "finallyStartTime"):
            if status.get(part):
                self.starts.setdefault(f"{key}/{part}/{len(status.get('retriesStatus') or [])}", self.now)

    def advance(self) -> None:
        """Start the pods that wait; if there is none, let the next thing happen: the end of a pod, or the end of a limit."""
        if time.monotonic() - self.changed < _QUIET:
            return
        if self.created:
            for name in sorted(self.created):
                self._start(self.created.pop(name))
            return
        if not self.pods:
            return
        ends = min((each.ends for each in self.pods.values()), default=float("inf"))
        limits = [each for each in self._limits() if each not in self.passed]
        limit = min(limits, key=lambda each: each[1], default=("", float("inf")))
        if ends == limit[1] == float("inf"):
            return
        if any(not _is_done(run) and not self._runs(name) for name, run in self.runs.items()):
            return  # the controller is about to create a pod
        self.changed = time.monotonic()
        if limit[1] < ends:
            self.now = max(self.now, limit[1])
            self.passed.update(each for each in limits if each[1] <= limit[1])
            self._move()
            return
        self.now = max(self.now, ends)
        self._end(min(self.pods.values(), key=lambda each: each.ends))

    def _runs(self, key: str) -> bool:
        """Whether an unfinished run has a pod, or is one of several tasks."""
        kind, name = key.split("/")
        return kind != "taskrun" or any(each.run == name for each in self.pods.values())

    def _path(self, kind: str) -> str:
        return _path(kind, self.case.name)

    def _start(self, pod: Json) -> None:
        run = self.runs.get(f"taskrun/{pod['metadata']['labels'].get(_RUN)}", {})
        spec = run.get("spec") or {}
        declared = ((run.get("status") or {}).get("taskSpec") or spec.get("taskSpec") or {}).get("params") or []
        values = {each["name"]: each["default"] for each in declared if "default" in each}
        for each in spec.get("params") or []:  # an object has the fields of its default, too
            default, value = values.get(each["name"]), each["value"]
            both = isinstance(default, dict) and isinstance(value, dict)
            values[each["name"]] = {**default, **value} if both else value
        task = pod["metadata"]["labels"].get(_TASK) or pod["metadata"]["labels"][_RUN]
        key = f"{task}/{json.dumps(values, sort_keys=True)}"
        self.counts[key] += 1
        outcome = self.case.outcome(task, values, self.counts[key])
        number = len((run.get("status") or {}).get("retriesStatus") or []) + 1
        self.attempts.append(PlayedAttempt(task, values, number))
        ends = float("inf") if outcome.hangs else self.now + outcome.seconds
        self.pods[pod["metadata"]["name"]] = _Pod(pod["metadata"]["name"], str(run["metadata"]["name"]), outcome, ends)
        self._write(pod, _status(pod, "running"))

    def _end(self, pod: _Pod) -> None:
        del self.pods[pod.name]
        found = self.api.request("GET", f"{self._path('pod')}/{pod.name}")
        self._write(found, _status(found, "terminated", pod.outcome))

    def _write(self, pod: Json, status: Json) -> None:
        path = f"{self._path('pod')}/{pod['metadata']['name']}/status"
        with suppress(AssertionError):  # the controller has deleted it
            self.api.request("PATCH", path, status, patch="merge-patch")

    def _limits(self) -> Iterator[tuple[str, float]]:
        """Yield the limits of the unfinished runs, with their ends on the clock."""
        for key, run in self.runs.items():
            if _is_done(run):
                continue
            spec, status = run.get("spec") or {}, run.get("status") or {}
            number = len(status.get("retriesStatus") or [])
            start = self.starts.get(f"{key}/startTime/{number}")
            if start is None:
                continue
            if key.startswith("taskrun"):
                yield from _ends(key, start, _seconds(spec.get("timeout"), _LIMIT))
                continue
            timeouts = spec.get("timeouts") or {}
            total = _seconds(timeouts.get("pipeline") or spec.get("timeout"), _LIMIT)
            tasks, final = _seconds(timeouts.get("tasks"), None), _seconds(timeouts.get("finally"), None)
            yield from _ends(key, start, total)
            begun = self.starts.get(f"{key}/finallyStartTime/{number}")
            if begun is None:
                yield from _ends(f"{key}/tasks", start, tasks or (total - final if total and final else None))
            else:
                yield from _ends(f"{key}/finally", begun, final or (total - tasks if total and tasks else None))

    def _move(self) -> None:
        """Move the starts of the unfinished runs into the past, so that as much time has passed as on the clock."""
        for key, run in self.runs.items():
            status = run.get("status") or {}
            number = len(status.get("retriesStatus") or [])
            moved = {}
            for part in ("startTime", "finallyStartTime"):
                start = self.starts.get(f"{key}/{part}/{number}")
                if start is not None and status.get(part) and not _is_done(run):
                    passed = timedelta(seconds=self.now - start + 1)
                    moved[part] = (clock.now() - passed).strftime("%Y-%m-%dT%H:%M:%SZ")
            if moved:
                kind, name = key.split("/")
                path = f"{self._path(kind)}/{name}/status"
                self.api.request("PATCH", path, {"status": moved}, patch="merge-patch")


def _ends(key: str, start: float, limit: float | None) -> Iterator[tuple[str, float]]:
    if limit is not None:
        yield key, start + limit


def _seconds(text: str | None, default: float | None) -> float | None:
    """Return a duration of Go in seconds; None for zero."""
    if text is None:
        return default
    found = go_duration(text)
    return None if found is None else parse_duration(found).total_seconds()


def _progress(run: Json) -> Json:
    """Return what changes in the status of a run that makes progress. Its conditions also get new times without any progress."""
    status = run.get("status") or {}
    conditions = [{**each, "lastTransitionTime": None} for each in status.get("conditions") or []]
    kept = ("podName", "startTime", "finallyStartTime", "childReferences", "retriesStatus")
    return {"conditions": conditions, **{key: status.get(key) for key in kept}}


def _is_done(run: Json) -> bool:
    conditions = (run.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Succeeded" and each["status"] != "Unknown" for each in conditions)


def _status(pod: Json, state: str, outcome: Outcome | None = None) -> Json:
    """Return the status of a pod as a kubelet writes it, with the results that the entrypoint writes at the end.

    Args:
        pod: The pod.
        state: `running` or `terminated`.
        outcome: How it ends.
    """
    now = clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    last = [each["name"] for each in pod["spec"]["containers"] if each["name"].startswith(_STEP)][-1]
    states = []
    for each in pod["spec"]["containers"]:
        found: Json = {"startedAt": now}
        if outcome is not None:
            code = outcome.code if each["name"] == last else 0
            found |= {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": now}
            if each["name"] == last and not code:
                found["message"] = json.dumps([_written(*each) for each in outcome.results.items()])
        states.append(
            {
                "name": each["name"],
                "ready": state == "running",
                "restartCount": 0,
                "image": each["image"],
                "imageID": each["image"],
                "state": {state: found},
            }
        )
    phase = "Running" if outcome is None else "Failed" if outcome.code else "Succeeded"
    return {"status": {"phase": phase, "startTime": now, "containerStatuses": states}}


def _written(name: str, value: Any) -> Json:
    return {"key": name, "value": value if isinstance(value, str) else json.dumps(value), "type": _RESULT}


def _path(kind: str, namespace: str = "") -> str:
    """Return the path of the objects of a kind, in a namespace or in all."""
    group = "/api/v1" if kind == "pod" else f"/apis/{_TEKTON}/v1"
    return f"{group}/namespaces/{namespace}/{_PLURALS[kind]}" if namespace else f"{group}/{_PLURALS[kind]}"


def _accounts(value: Any) -> Iterator[str]:
    """Yield the ServiceAccounts to which a value refers."""
    if isinstance(value, dict):
        if value.get("serviceAccountName"):
            yield str(value["serviceAccountName"])
        for each in value.values():
            yield from _accounts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _accounts(each)


_Case = TypeVar("_Case", bound=Case)


class TektonPlayer(Player[_Case, _Play, Played]):
    """Plays runs on Tekton's controller."""

    parallel: ClassVar[int] = 25
    watched: ClassVar[Mapping[str, str]] = {kind: _path(kind) for kind in _PLURALS}

    def name(self, case: _Case) -> str:
        """Return the namespace of the run."""
        return case.name

    def owner(self, kind: str, found: Json) -> str:
        """Return the namespace of an object."""
        del kind
        return str(found["metadata"]["namespace"])

    def begin(self, case: _Case) -> _Play:
        """Return the play of a run."""
        return _Play(self.api, case)

    def create(self, case: _Case) -> None:
        """Create the namespace of a run, and its objects."""
        space = f"/api/v1/namespaces/{case.name}"
        self.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": case.name}})
        for name in sorted({"default", *_accounts(case.documents)}):
            self.api.request("POST", f"{space}/serviceaccounts", {"metadata": {"name": name}})
        for each in reversed(case.documents):
            path = f"/apis/{each['apiVersion']}/namespaces/{case.name}/{each['kind'].lower()}s"
            self.api.request("POST", path, each)

    def end(self, case: _Case, play: _Play) -> Played:
        """Return how a run went."""
        del case
        return Played(play.main, play.attempts, play.now, stuck=not play.over)
