"""The previous release, this version, and both once more: `helm upgrade` and `helm rollback` under runs of every kind.

docs/upgrades.md promises that a rollback right after an upgrade is safe. The previous release is the newest one in
`hack/releases.txt`, built from its commit, or the one that PREVIOUS names. Each run works in five stages; all but the last
are in progress while operators are replaced. A second rollback follows `perdure fleet --finish-upgrade`: the previous release
cannot read the runs, and leaves them as they are. At the end, each has completed, and has done each piece of work exactly once.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

import releases
from cluster import lifecycle, projectimage
from cluster.errors import ClusterError
from cluster.paths import REPOSITORY, Cache
from deploy import Target, kind_cluster
from perdure.api.state_versions import NEWEST
from perdure.engine import events as ev
from support.cluster.namespace import SYSTEM, Cluster, Json, check_history, recorded, temporary_namespace
from support.cluster.stages import (
    EVERY_SECONDS,
    KINDS,
    LATER_KINDS,
    STAGES,
    TEAM,
    Kind,
    begin,
    begin_later,
    in_flight,
    pieces,
    send,
    signals,
    started,
)
from version import declared_version

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]

CACHE = Cache.from_environment(os.environ)
NAME = "perdure-upgrades"
COPIES = 6
LATER_COPIES = 3
IMAGE = f"localhost/perdure:{declared_version(REPOSITORY)}-upgraded"
HIBERNATE = ["--set-string=extraEnv[0].name=PERDURE_HIBERNATE_AFTER_SECONDS", "--set-string=extraEnv[0].value=2"]


@dataclass(frozen=True)
class Installation:
    """A cluster with the chart of one of the two versions."""

    target: Target
    system: Cluster
    previous: releases.Release

    def helm(self, *arguments: str) -> str:
        return self.target.run("helm", *arguments, f"--namespace={SYSTEM}")

    def settings(self, image: str, *others: str) -> list[str]:
        repository, _, tag = image.rpartition(":")
        flags = [f"--set-string=image.repository={repository}", f"--set-string=image.tag={tag}", *others]
        return [*flags, "--wait", "--timeout=5m"]

    def missing_values(self) -> list[str]:
        """The values that today's chart requires and the previous one does not have."""
        chart = Path("charts") / "perdure"
        before = yaml.safe_load(
            (releases.source(CACHE, self.previous) / chart / "values.yaml").read_text(encoding="utf-8")
        )
        required = (REPOSITORY / chart / "files" / "required-values.txt").read_text(encoding="utf-8").split()

        def known(path: str) -> bool:
            return reduce(lambda found, name: (found or {}).get(name), path.split("."), before) is not None

        return [each for each in required if not known(each)]

    def upgrade(self) -> None:
        self.helm(
            "upgrade", "perdure", "charts/perdure", "--reset-then-reuse-values", *self.settings(IMAGE, *HIBERNATE)
        )
        self.check_operators(IMAGE)

    def roll_back(self) -> None:
        self.helm("rollback", "perdure", "1", "--wait", "--timeout=5m")
        self.check_operators(self.previous.image)

    def finish_upgrade(self) -> None:
        """Have the operators store objects in the form of today's version."""
        self.target.run(
            str(Path(sys.executable).with_name("perdure")), "fleet", "--finish-upgrade", f"--namespace={SYSTEM}"
        )

    def hibernated(self) -> int:
        """How many runs the operators do not have in memory."""
        total = 0
        for pod in self.system.list("pods", "-l=app.kubernetes.io/component=operator"):
            path = f"/api/v1/namespaces/{SYSTEM}/pods/{pod['metadata']['name']}:8080/proxy/metrics"
            lines = self.system("get", "--raw", path).splitlines()
            total += sum(int(float(each.split()[1])) for each in lines if each.startswith("perdure_runs_hibernated "))
        return total

    def check_operators(self, image: str) -> None:
        """Two operators, all of one version."""

        def images() -> list[str]:
            pods = self.system.list("pods", "-l=app.kubernetes.io/component=operator")
            return [each["spec"]["containers"][0]["image"] for each in pods]

        self.system.wait(f"two operators with {image}", lambda: images() == [image] * 2)


def cluster(verb: str, *arguments: str) -> None:
    """Run the cluster scripts: they may start a daemon that outlives them."""
    command = [sys.executable, str(REPOSITORY / "hack" / "cluster"), verb, f"--name={NAME}", *arguments]
    subprocess.run(command, check=True, timeout=1800)


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    """A new cluster with the previous release, and the images of both versions."""
    known = {each.version: each for each in reversed(releases.releases())}
    previous = known[os.environ.get("PREVIOUS") or list(known)[-1]]
    try:
        cluster("up", "--workers=0")
        archives = [releases.image(CACHE, previous), REPOSITORY / "build" / "upgraded.tar"]
        projectimage.build(CACHE, REPOSITORY / "Dockerfile", REPOSITORY, IMAGE, archives[1])
        target = kind_cluster(CACHE, NAME, workers=0)
        lifecycle.load(CACHE, NAME, archives)
        kubeconfig = Path(target.environment["KUBECONFIG"])
        found = Installation(target, Cluster("kubectl", kubeconfig, SYSTEM), previous)
        chart = releases.source(CACHE, previous) / "charts" / "perdure"
        found.helm("upgrade", "--install", "perdure", str(chart), "--create-namespace", *found.settings(previous.image))
        yield found
    finally:
        if not os.environ.get("KEEP"):
            cluster("down")


@pytest.fixture
def namespace(installation: Installation) -> Iterator[Cluster]:
    with temporary_namespace(installation.system) as made:
        yield made


@pytest.fixture
def with_defaults(installation: Installation) -> Iterator[Cluster]:
    with temporary_namespace(installation.system) as made:
        yield made


def test_runs_of_every_kind_survive_an_upgrade_a_rollback_and_the_next_upgrade(
    installation: Installation, namespace: Cluster, with_defaults: Cluster
) -> None:
    runs = begin(namespace, installation.previous.image, copies=COPIES)
    namespace.wait("all runs to begin", lambda: all(started(namespace, name) for name in runs))
    observations = [in_flight(namespace, runs)]
    if missing := installation.missing_values():
        with pytest.raises(ClusterError, match=f"values are missing: {missing[0].partition('.')[0]}"):
            installation.helm("upgrade", "perdure", "charts/perdure", "--reuse-values", *installation.settings(IMAGE))
    installation.upgrade()
    later = begin_later(with_defaults, installation.previous.image, copies=LATER_COPIES)
    with_defaults.wait("the later runs", lambda: all(started(with_defaults, name) for name in later))
    for stage, change in ((1, installation.roll_back), (2, installation.upgrade)):
        send(namespace, stage, runs)
        namespace.wait("the signals", lambda stage=stage: all(signals(namespace, name) >= stage for name in runs))
        if change == installation.roll_back:
            send(with_defaults, stage, later)
            namespace.wait("runs to hibernate", lambda: installation.hibernated() >= COPIES)
        observations.append(in_flight(namespace, runs) | in_flight(with_defaults, later))
        change()
    installation.finish_upgrade()
    send(with_defaults, 2, later)
    send(with_defaults, 3, later)
    send(namespace, 3, runs)
    namespace.wait("the signals", lambda: all(signals(namespace, name) >= 3 for name in runs))
    with_defaults.wait("the signals", lambda: all(signals(with_defaults, name) >= 3 for name in later))
    namespace.wait("runs to hibernate", lambda: installation.hibernated() >= COPIES)
    observations.append(in_flight(namespace, runs) | in_flight(with_defaults, later))
    installation.roll_back()
    send(namespace, 4, runs)
    send(with_defaults, 4, later)
    check_left_alone(namespace, runs)
    check_left_alone(with_defaults, later)
    installation.upgrade()
    check_all_once(namespace, runs)
    check_all_once(with_defaults, later)
    for each in with_defaults.list("workflowruns"):
        assert TEAM.items() <= each["metadata"]["labels"].items()
    children = [each for each in namespace.list("workflowruns") if each["metadata"]["name"] not in runs]
    counted = [each for each in children if (each["spec"].get("workflow") or {}).get("name") == "count"]
    naps = [each for each in children if (each["spec"].get("workflow") or {}).get("name") == "nap"]
    assert len(naps) == STAGES * COPIES
    assert len(namespace.list("deadletters")) == STAGES * COPIES
    check_files(namespace.list("artifactsets"), [namespace.with_history(name) for name in runs if "files" in name])
    times = check_schedule([namespace.closed(each["metadata"]["name"])["output"] for each in counted])
    print(table(observations))
    print(
        f"Schedule: {len(times)} runs, one every {EVERY_SECONDS} s, none twice and none missing; {len(naps)} children"
    )


def check_left_alone(namespace: Cluster, runs: dict[str, Kind]) -> None:
    """The operators of the previous release report runs that they cannot read, and change nothing but that condition."""
    before = {name: without_conditions(namespace, name) for name in runs}
    for name in runs:
        reported = namespace.condition("workflowrun", name, "NewerState")
        assert f"state version {NEWEST}, and this operator reads versions 1 to" in reported["message"]
    assert {name: without_conditions(namespace, name) for name in runs} == before


def without_conditions(namespace: Cluster, name: str) -> tuple[Json, Json]:
    """The spec of a run, and its status as it is stored."""
    run = namespace.get("workflowrun", name) or {}
    assert run["status"]["stateVersion"] == NEWEST, name
    return run["spec"], {key: each for key, each in run["status"].items() if key != "conditions"}


def check_all_once(namespace: Cluster, runs: dict[str, Kind]) -> None:
    for name, kind in runs.items():
        status = namespace.closed(name, seconds=900)
        assert status["phase"] == "Completed", (name, status.get("failure"))
        check_once(namespace.with_history(name), kind)


def check_once(run: Json, kind: Kind) -> None:
    """Each piece of work of the run is in its history exactly once; today's code decides the same."""
    events = recorded(run)
    found = pieces(events)
    want = {
        "WorkflowExecutionSignaled": STAGES - 1,
        "ActivityTaskScheduled": STAGES * (kind.activities + kind.failures) + 2 * kind.services,
        "ActivityTaskCompleted": STAGES * kind.activities + kind.services,
        "ActivityTaskFailed": STAGES * kind.failures,
        "ChildWorkflowExecutionCompleted": STAGES * kind.children,
        "TimerFired": STAGES * kind.timers,
        "WorkflowExecutionCompleted": 1,
    }
    assert {each: found[each] for each in want} == want, run["metadata"]["name"]
    attempts = {each.attempt for each in events if isinstance(each, ev.ActivityTaskStarted)}
    assert attempts <= {kind.attempts}, (run["metadata"]["name"], attempts)
    if "inline" in run["spec"]:
        check_history(run)


def check_files(sets: list[Json], runs: list[Json]) -> None:
    """Each stage of each run has uploaded its file, and no other attempt has."""
    assert len(sets) == len(runs)
    for run in runs:
        completed = [each for each in recorded(run) if isinstance(each, ev.ActivityTaskCompleted)]
        assert [list(each.artifacts) for each in completed] == [["report"]] * STAGES, run["metadata"]["name"]


def check_schedule(times: list[str]) -> list[str]:
    """Check the scheduled times of the runs of a Schedule: each once, and none is left out."""
    seconds = sorted(datetime.fromisoformat(each).timestamp() for each in times)
    assert {later - earlier for earlier, later in pairwise(seconds)} == {EVERY_SECONDS}
    return times


def table(observations: list[dict[str, Counter[str]]]) -> str:
    stages = ("upgrade", "rollback", "second upgrade", "rollback from the new form")
    lines = [" | ".join(["kind", "runs", *(f"during the {each}" for each in stages), "at the end"])]
    for name in (*KINDS, *LATER_KINDS):
        cells = [
            ", ".join(f"{number} {what}" for what, number in each.get(name, Counter()).items()) for each in observations
        ]
        copies = COPIES if name in KINDS else LATER_COPIES
        lines.append(" | ".join([name, str(copies), *cells, "all completed, once"]))
    return "\n".join(lines)
