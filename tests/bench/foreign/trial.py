"""Run converted examples on a cluster, and compare how they end with what their documentation says."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from kubernetes.client import ApiException

from bench.foreign import expectations
from bench.foreign.examples import Example
from perdure.api.labels import SCHEDULE_LABEL
from support.cluster.artifacts import store
from support.cluster.namespace import Cluster, Json
from support.cluster.objects import refusal

_LOOK_SECONDS: Final = 1.0
_DEFINITIONS: Final = frozenset({"Workflow", "WorkflowLimit"})


@dataclass(frozen=True)
class Outcome:
    """How one example ended."""

    name: str
    same: bool | None
    """Whether as documented; None if it was not run."""
    detail: str
    seconds: float = 0.0


class _UnfinishedError(Exception):
    """A run did not close in time."""


@contextmanager
def prepared(cluster: Cluster, name: str) -> Iterator[Cluster]:
    """A new namespace with a bucket for artifacts, in which pods can run as root and use the Kubernetes API."""
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    namespace = Cluster(cluster.kubectl, cluster.kubeconfig, name)
    try:
        group, account = "rbac.authorization.k8s.io", {"kind": "ServiceAccount", "name": "default"}
        binding = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": "edit"}}
        binding["roleRef"] = {"apiGroup": group, "kind": "ClusterRole", "name": "edit"}
        namespace.apply({**binding, "subjects": [{**account, "namespace": name}]}, *expectations.OBJECTS)
        namespace.wait("a ServiceAccount", lambda: namespace.get("serviceaccount", "default"))
        store(namespace)
        yield namespace
    finally:
        cluster.objects.delete("namespace", "", name)


class Trial:
    """Runs examples in one namespace, several at a time."""

    def __init__(self, namespace: Cluster, *, seconds: float, parallel: int) -> None:
        """Create it.

        Args:
            namespace: Where the examples run.
            seconds: How long one may take.
            parallel: How many run at the same time.
        """
        self._namespace = namespace
        self._seconds = seconds
        self._parallel = parallel

    def define(self, examples: Sequence[Example]) -> list[str]:
        """Create the objects that runs of examples refer to, and return those that the API server rejects."""
        rejected = []
        for example in examples:
            definitions = [each for each in example.manifests if each["kind"] in _DEFINITIONS]
            for manifest in (*example.prerequisites, *definitions):
                try:
                    self._define(manifest)
                except ApiException as error:
                    rejected.append(f"{example.name}: {manifest['kind']}: {refusal(error)}")
        return rejected

    def run(self, examples: Sequence[Example]) -> Iterator[Outcome]:
        """Run examples, and yield how each has ended."""
        with ThreadPoolExecutor(self._parallel) as workers:
            for each in as_completed([workers.submit(self._outcome, example) for example in examples]):
                yield each.result()

    def _define(self, manifest: Json) -> None:
        metadata = {key: value for key, value in manifest["metadata"].items() if key != "namespace"}
        if "name" in metadata:
            self._namespace.apply({**manifest, "metadata": metadata})

    def _outcome(self, example: Example) -> Outcome:
        began = time.monotonic()
        try:
            ended = [self._ended(example, name) for name in self._start(example)]
        except (ApiException, AssertionError, _UnfinishedError) as error:
            detail = refusal(error) if isinstance(error, ApiException) else str(error)
            return Outcome(example.name, same=False, detail=detail, seconds=time.monotonic() - began)
        if not ended:
            return Outcome(example.name, same=None, detail="defines nothing that runs")
        same = all(status["phase"] in expectations.phases(example) for status in ended)
        detail = ", ".join(sorted({status["phase"] for status in ended}))
        if not same:
            detail = "; ".join([detail, *(_failure(status) for status in ended if status.get("failure"))])
        return Outcome(example.name, same=same, detail=detail, seconds=time.monotonic() - began)

    def _start(self, example: Example) -> Iterator[str]:
        """Start the runs of an example, and yield the name of each."""
        by_kind: dict[str, list[Json]] = {}
        for manifest in example.manifests:
            by_kind.setdefault(manifest["kind"], []).append(manifest)
        runs, schedules = by_kind.get("WorkflowRun", []), by_kind.get("Schedule", [])
        for run in runs:
            yield self._create(run)
        for schedule in schedules:
            yield self._triggered(schedule)
        for workflow in by_kind.get("Workflow", []) if not runs and not schedules else ():
            spec: Json = {"workflow": {"name": workflow["metadata"]["name"]}}
            if example.name in expectations.INPUTS:
                spec["input"] = expectations.INPUTS[example.name]
            yield self._create({**workflow, "kind": "WorkflowRun", "spec": spec})

    def _create(self, run: Json) -> str:
        metadata = {key: value for key, value in run["metadata"].items() if key not in {"name", "namespace"}}
        metadata.setdefault("generateName", f"{run['metadata'].get('name')}-")
        created = self._namespace.objects.create(self._namespace.namespace, {**run, "metadata": metadata})
        return str(created["metadata"]["name"])

    def _triggered(self, schedule: Json) -> str:
        """Create a paused Schedule, trigger it, and return the name of its run."""
        name = schedule["metadata"]["name"]
        self._define({**schedule, "spec": {**schedule["spec"], "paused": True}})
        self._request("Schedule", name, "trigger", {})

        def started() -> str | None:
            found = self._namespace.list("workflowruns", "-l", f"{SCHEDULE_LABEL}={name}")
            return found[0]["metadata"]["name"] if found else None

        return str(self._namespace.wait(f"schedule {name} to start a run", started, seconds=self._seconds))

    def _request(self, kind: str, name: str, request: str, details: Any) -> None:
        operation = {"apiVersion": "perdure.dev/v1alpha1", "kind": "Operation"}
        spec = {"target": {"kind": kind, "name": name}, request: details}
        metadata = {"generateName": f"{request.lower()}-"}
        self._namespace.objects.create(self._namespace.namespace, {**operation, "metadata": metadata, "spec": spec})

    def _ended(self, example: Example, name: str) -> Json:
        """Wait until a run has closed; return its status.

        Raises:
            _UnfinishedError: It has not closed in time. It is terminated.
        """
        for signal, payload in expectations.SIGNALS.get(example.name, {}).items():
            self._request("WorkflowRun", name, "signal", {"name": signal, "input": payload})
        status: Json = {}
        deadline = time.monotonic() + self._seconds
        while time.monotonic() < deadline:
            run = self._namespace.get("workflowrun", name)
            status = (run or {}).get("status") or {}
            if status.get("completionTime"):
                return status
            time.sleep(_LOOK_SECONDS)
        self._request("WorkflowRun", name, "terminate", {"reason": "the example takes too long"})
        conditions = "; ".join(each.get("message", "") for each in status.get("conditions") or ())
        raise _UnfinishedError(f"not closed after {self._seconds:.0f} s: {conditions}")


def _failure(status: Json) -> str:
    failure = status["failure"]
    while failure.get("cause"):
        failure = failure["cause"]
    return f"{failure.get('type') or failure.get('kind')}: {failure.get('message', '')}"[:300]
