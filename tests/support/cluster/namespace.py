"""A namespace of a real cluster, for tests: apply, look, wait."""

import os
import secrets
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.engine import history
from perdure.engine.events import (
    AnyEvent,
    WorkflowExecutionStarted,
    WorkflowExecutionTerminated,
    WorkflowExecutionTimedOut,
)
from perdure.engine.fold import as_recorded
from perdure.engine.state import RunState
from perdure.language.compiler import compile_program
from perdure.language.interpreter import Interpreter, RunScope
from perdure.language.memory import load_memory
from perdure.runtime.chains import reset_of
from perdure.runtime.revisions import Content, Reference
from perdure.runtime.segments import gather
from perdure.schedule.run_manifests import scheduled_by
from support.cluster.objects import Objects, objects

Json = dict[str, Any]

IMAGE = os.environ.get("PERDURE_TEST_IMAGE", "localhost/perdure:dev")
"""An image with Python and `perdure.activity` that the cluster's nodes have."""
SYSTEM = "perdure-system"
EXCLUDED = "own-*"
"""Namespaces that the deployed operator leaves to operators that tests start (hack/runtests.py installs it so)."""


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("PERDURE_CACHE") or f"{base}/perdure")


def helm_program() -> str:
    """helm, from PATH or from the project's cache."""
    program = shutil.which("helm") or shutil.which("helm", path=cache_folder() / "bin")
    assert program is not None, "helm is needed: put it on PATH, or run `python3 hack/cluster tools`"
    return program


@dataclass(frozen=True)
class Cluster:
    """One namespace of a cluster, and kubectl for it."""

    kubectl: str
    kubeconfig: Path
    namespace: str = "default"

    def run(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl, whatever its exit code."""
        command = [self.kubectl, "--kubeconfig", str(self.kubeconfig), "--namespace", self.namespace, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300, check=False)

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl, which must succeed."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    @property
    def objects(self) -> Objects:
        """All objects of the cluster."""
        return objects(self.kubeconfig)

    def apply(self, *manifests: Json) -> None:
        """Create or update objects from manifests."""
        for manifest in manifests:
            self.objects.apply(self.namespace, manifest)

    def create(self, *manifests: Json) -> None:
        """Create objects."""
        for manifest in manifests:
            self.objects.create(self.namespace, manifest)

    def start(self, name: str, spec: Json) -> None:
        """Create a WorkflowRun."""
        self.create(run_manifest(name, spec))

    def delete(self, kind: str, name: str) -> None:
        """Delete an object, if it exists, and wait until it no longer exists."""
        found = self.get(kind, name)
        self.objects.delete(kind, self.namespace, name)

        def gone() -> bool:
            now = self.get(kind, name)
            return now is None or now["metadata"]["uid"] != (found or now)["metadata"]["uid"]

        self.wait(f"{kind} {name} to be gone", gone)

    def get(self, kind: str, name: str) -> Json | None:
        """An object; None if it does not exist."""
        return self.objects.get(kind, self.namespace, name)

    def with_history(self, name: str) -> Json:
        """A WorkflowRun with its definition and its whole history in its status: nothing of them may be missing or changed."""
        run = self.get("workflowrun", name)
        assert run is not None
        run = self.with_definition(run)
        past = gather(run, self.segments(run))
        assert past.damage == ()
        run.setdefault("status", {}).setdefault("history", {})["events"] = past.events
        return run

    def with_definition(self, run: Json) -> Json:
        """A WorkflowRun with the definition of its revision in its status, if it refers to one."""
        status = run.get("status") or {}
        reference = Reference.of(status)
        if reference is None:
            return run
        revision = self.get("workflowrevision", reference.name)
        assert revision is not None
        assert Content.of(revision).reference() == reference
        return {**run, "status": {**status, "definition": revision["spec"]["definition"]}}

    def segments(self, run: Json) -> list[Json]:
        """The HistorySegments of a run, in their order."""
        found = self.list("historysegments", f"--field-selector=spec.workflowRun.runId={run['metadata']['uid']}")
        return sorted(found, key=lambda segment: segment["spec"]["index"])

    def list(self, kind: str, *selectors: str) -> list[Json]:
        """The objects that selectors pick, which are written as for kubectl."""
        return self.objects.list(kind, self.namespace, *selectors)

    def wait(self, what: str, found: Callable[[], Any], *, seconds: float = 300.0) -> Any:
        """Call `found` repeatedly until it returns a result. The timeout only ends a failed test."""
        deadline = time.monotonic() + seconds
        while True:
            result = found()
            if result:
                return result
            assert time.monotonic() < deadline, f"waited {seconds:.0f} s in vain for {what}"
            time.sleep(0.1)

    def closed(self, name: str, *, seconds: float = 300.0) -> Json:
        """The status of a run, once it is closed."""

        def status() -> Json | None:
            run = self.get("workflowrun", name)
            found: Json = (run or {}).get("status") or {}
            return found if found.get("completionTime") else None

        try:
            result: Json = self.wait(f"run {name} to close", status, seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self('describe', 'workflowrun', name)}\n{self('get', 'pods')}") from None
        return result

    def condition(self, kind: str, name: str, reason: str) -> Json:
        """The condition with that reason, once the object has it."""

        def look() -> Json | None:
            conditions = ((self.get(kind, name) or {}).get("status") or {}).get("conditions") or []
            return next((c for c in conditions if c["reason"] == reason), None)

        result: Json = self.wait(f"{kind} {name} to say {reason}", look)
        return result

    def pending(self, name: str, **wanted: Any) -> Json:
        """The one pending activity of a run, once it has the wanted fields."""

        def look() -> Json | None:
            status = (self.get("workflowrun", name) or {}).get("status") or {}
            for activity in status.get("pendingActivities") or []:
                if wanted.items() <= activity.items():
                    found: Json = activity
                    return found
            return None

        result: Json = self.wait(f"run {name} to have a pending activity with {wanted}", look)
        return result

    def pod(self, name: str, phase: str) -> Json:
        """A pod, once it is in a phase."""

        def look() -> Json | None:
            found = self.get("pod", name)
            return found if found and found["status"].get("phase") == phase else None

        result: Json = self.wait(f"pod {name} to be {phase}", look)
        return result


@contextmanager
def temporary_namespace(cluster: Cluster, *, excluded: bool = False) -> Iterator[Cluster]:
    """A namespace that enforces the restricted Pod Security standard, removed with all that is in it.

    With ``excluded``, only operators that the test starts serve it; the deployed one leaves it alone.
    """
    if excluded:
        _check_exclusion(cluster)
    name = f"{'own' if excluded else 'test'}-{secrets.token_hex(4)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    try:
        yield Cluster(cluster.kubectl, cluster.kubeconfig, name)
    finally:
        cluster.objects.delete("namespace", "", name)


def _check_exclusion(cluster: Cluster) -> None:
    """Two operators in a namespace would share its runs, and a test that kills one would prove nothing."""
    deployment = cluster.objects.get("deployment", SYSTEM, "perdure")
    assert deployment is not None, f"Perdure is not installed in {SYSTEM}"
    environment = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "PERDURE_EXCLUDE_NAMESPACES", "value": EXCLUDED} in environment, (
        "the deployed operator must leave the namespaces of these tests alone: "
        f"helm upgrade perdure charts/perdure -n {SYSTEM} --reset-then-reuse-values --set 'excludeNamespaces={{{EXCLUDED}}}'"
    )


def run_manifest(name: str, spec: Json) -> Json:
    return {"apiVersion": "perdure.dev/v1alpha1", "kind": "WorkflowRun", "metadata": {"name": name}, "spec": spec}


def python(code: str, **options: Any) -> Json:
    """An activity that runs a piece of Python; `perdure.activity` is imported as `activity`."""
    name = options.pop("name", "work")
    options.setdefault("startToCloseTimeout", "2m")
    program = f"from perdure import activity\n{code}"
    container = {
        "image": IMAGE,
        "command": ["python", "-c", program],
        "resources": {"requests": {"cpu": "5m", "memory": "16Mi"}},
    }
    return {"name": name, "container": container, **options}


def one_step(work: Json, **spec: Any) -> Json:
    """The spec of a run that does one activity and returns its result."""
    call: Json = {"name": work["name"]}
    if "input" in spec:
        call["input"] = "${input}"
    inline = {"activities": [work], "steps": [{"name": "only", "activity": call}]}
    return {"inline": inline, **spec}


def recorded(run: Json) -> tuple[AnyEvent, ...]:
    """The complete history of a run."""
    return history.decode_events(run["status"]["history"]["events"])


def check_history(run: Json) -> RunState:
    """A run's history is gap-free, ends in one closing event, and folds to the stored state; the decider decides the same."""
    events = recorded(run)
    assert [event.event_id for event in events] == list(range(1, len(events) + 1))
    first = events[0]
    assert isinstance(first, WorkflowExecutionStarted)
    program = compile_program(WorkflowSpec.parse(run["status"].get("definition") or run["spec"]["inline"]))
    reset = reset_of(run)
    scope = RunScope(
        name=reset.original.name if reset else run["metadata"]["name"],
        namespace=run["metadata"]["namespace"],
        workflow_id=first.workflow_id,
        run_id=first.original_execution_run_id,
        attempt=first.attempt,
        schedule=tie.scope() if (tie := scheduled_by(run)) else {},
    )
    interpreter = Interpreter(program, scope, input=first.input, start_time=first.event_time)
    folded = history.replay(events, interpreter)
    stored = as_recorded(history.decode_state(run["status"]["state"]))
    folded = as_recorded(folded)
    if isinstance(events[-1], WorkflowExecutionTerminated | WorkflowExecutionTimedOut):
        # Events just before the end were processed or not: no event shows it, and it no longer matters.
        folded, stored = (msgspec.structs.replace(state, memory=None) for state in (folded, stored))
    assert history.encode(folded) == history.encode(stored)
    assert load_memory(folded.memory) == load_memory(stored.memory)
    return folded


def find_cluster() -> Cluster:
    """The cluster that KUBECONFIG names, or the one of `make cluster`.

    Raises:
        LookupError: There is none; the message says how to create one.
    """
    kubeconfig = Path(os.environ.get("KUBECONFIG") or cache_folder() / "clusters" / "perdure" / "kubeconfig")
    if not kubeconfig.exists():
        raise LookupError(f"there is no cluster: {kubeconfig} does not exist; bring one up with `make cluster`")
    binary = shutil.which("kubectl", path=cache_folder() / "bin") or shutil.which("kubectl")
    if binary is None:
        raise LookupError("there is no kubectl: put it on PATH, or run `python3 hack/cluster tools`")
    cluster = Cluster(binary, kubeconfig)
    patience = time.monotonic() + 60  # a cluster that has just started on a busy machine may not be ready yet
    while (answer := cluster.run("get", "--raw", "/readyz", "--request-timeout=10s")).returncode:
        if time.monotonic() > patience:
            raise LookupError(f"the cluster of {kubeconfig} does not answer: {answer.stderr.strip()}")
        time.sleep(1)
    return cluster
