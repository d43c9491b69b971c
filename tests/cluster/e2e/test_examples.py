"""The examples on a real cluster: each run ends as its simulation does, in the same phase and with the same output.

Times are made short by the input, never in the manifests. What a test waits for is seen in the run's history, so that timing
decides nothing. With `--record` the histories are kept under tests/golden/cluster.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from perdure.engine import events as ev
from perdure.language.step_failures import as_json
from perdure.simulation.manifests import Manifest
from perdure.simulation.report import Report
from support import histories
from support.cluster.namespace import Cluster, Json, check_history, recorded, run_manifest
from support.cluster.volumes import local_volume
from support.histories import EXAMPLES, GOLDEN

pytestmark = pytest.mark.cluster


class Example:
    """An example in its own namespace."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.workflow: str = self.manifests()[0]["metadata"]["name"]
        cluster("apply", "-k", str(EXAMPLES / name))

    def manifests(self) -> list[Json]:
        return list(yaml.safe_load_all((EXAMPLES / self.name / "workflow.yaml").read_text(encoding="utf-8")))

    def start(self, run: str, payload: Json | None = None) -> None:
        self.cluster.start(run, {"workflow": {"name": self.workflow}, **({"input": payload} if payload else {})})

    def signal(self, workflow_id: str, signal: str, payload: Any = None) -> None:
        """Signal a run with another run, as users can."""
        step = {"name": "signal", "signal": {"workflowId": workflow_id, "name": signal, "input": payload}}
        self.cluster.start(f"signal-{workflow_id}", {"inline": {"steps": [step]}})
        assert self.cluster.closed(f"signal-{workflow_id}")["phase"] == "Completed"

    def chain(self, workflow_id: str) -> list[Json]:
        """The started runs of a workflow ID, oldest first."""
        runs = [
            self.cluster.with_definition(run)
            for run in self.cluster.list("workflowruns")
            if (run["spec"].get("workflowId") or run["metadata"]["name"]) == workflow_id
            and (run.get("status") or {}).get("startTime")
        ]
        return sorted(runs, key=lambda run: str(run["status"]["startTime"]))

    def until_asleep(self, workflow_id: str, timer: str) -> None:
        """Wait until a timer of the newest run is open."""

        def asleep() -> bool:
            events = [event for run in self.chain(workflow_id)[-1:] for event in recorded(run)]
            begun = [e.event_id for e in events if isinstance(e, ev.TimerStarted) and e.timer_id == timer]
            return bool(begun) and not any(getattr(e, "started_event_id", 0) in begun for e in events)

        self.cluster.wait(f"{workflow_id} to sleep at {timer}", asleep)

    def ended(self, workflow_id: str) -> Json:
        """The last run of a workflow ID, once it has closed. Checks that the histories of all its runs are complete."""

        def last() -> Json | None:
            runs = self.chain(workflow_id)
            status = runs[-1]["status"] if runs else {}
            return runs[-1] if status.get("completionTime") and status["phase"] != "ContinuedAsNew" else None

        run: Json = self.cluster.wait(f"{workflow_id} to end", last, seconds=400)
        for one in filter(histories.has_definition, self.chain(workflow_id)):
            check_history(one)
        return run

    def ends_like(self, workflow_id: str, scenario: str, payload: Json | None = None, **changes: Any) -> Json:
        """The final status of a run, which must be that of a simulation with the same input."""
        file = EXAMPLES / self.name / "scenarios" / f"{scenario}.yaml"
        if payload is not None:
            changes["input"] = payload
        report = Report(histories.simulate(file, **changes))
        status: Json = self.ended(workflow_id)["status"]
        assert outcome(status) == simulated(report)
        return status


def outcome(status: Json) -> Json:
    return {
        "phase": status["phase"],
        "output": status.get("output"),
        "failure": essence(status["failure"]) if status.get("failure") else None,
    }


def simulated(report: Report) -> Json:
    failure = report.failure
    return {
        "phase": report.phase,
        "output": report.output,
        "failure": essence(as_json(failure)) if failure else None,
    }


def essence(failure: Json) -> Json:
    """A failure without the parts that only a container has: the exit code, the pod."""
    reported = {key: failure.get(key) for key in ("kind", "type", "message", "nonRetryable", "retryState", "activity")}
    cause = failure.get("cause")
    return reported | {
        "cause": essence(cause) if cause else None,
        "suppressed": [essence(other) for other in failure.get("suppressed") or []],
    }


@pytest.fixture
def example(namespace: Cluster, request: pytest.FixtureRequest, *, record: bool) -> Iterator[Callable[[str], Example]]:
    """Runs examples in the namespace, and stores their histories with `--record`."""
    yield lambda name: Example(namespace, name)
    if record:
        runs = namespace.list("workflowruns")
        assert all(run["status"].get("completionTime") for run in runs), "open runs are not recorded"
        name = request.node.name.removeprefix("test_").replace("_", "-")
        histories.write(GOLDEN / "cluster" / f"{name}.json", histories.exported(runs))


Use = Callable[[str], Example]
_DATABASES = ("orders", "payments", "users")


@pytest.mark.slow
def test_order_flow_survives_the_loss_of_a_pod(example: Use, namespace: Cluster) -> None:
    orders = example("order-flow")
    many = {"items": [f"lamp-{number}" for number in range(30)]}
    orders.start("order", many)

    def picked_two() -> bool:
        lease = namespace.get("lease", "order-2-1") or {"metadata": {}}
        return '"lamp-1"' in lease["metadata"].get("annotations", {}).get("perdure.dev/heartbeat-details", "")

    namespace.wait("the heartbeat to report two items", picked_two)
    namespace("delete", "pod", "order-2-1", "--grace-period=1", "--wait=false")
    status = orders.ends_like("order", "ordered", many)
    assert status["progress"] == "4/4"
    (run,) = orders.chain("order")
    closed = [e for e in recorded(run) if isinstance(e, ev.ActivityTaskCompleted)]
    reserved, charged, shipped = (e.attempt for e in closed)
    assert reserved >= 2
    assert charged >= 3
    assert shipped >= 1  # a busy node may add timeouts to each
    assert closed[0].result["resumedAt"] >= 2


@pytest.mark.slow
def test_a_subscription_ends_as_simulated(example: Use) -> None:
    subscription = example("subscription")
    short = {"trial": "1s", "period": "1s", "periods": 2}
    slow = {"trial": "1s", "period": "1h"}
    subscription.start("agreed", short)
    subscription.start("curious", {"trial": "1h"})
    subscription.start("leaver", slow)
    subscription.start("broke", {**short, "card": "4000000000000002"})
    subscription.start("free", {"price": 0})
    subscription.until_asleep("curious", "trial.over/nap")
    subscription.signal("curious", "leave")
    subscription.until_asleep("leaver", "period.over/nap")
    subscription.signal("leaver", "leave")
    subscription.ends_like("agreed", "a-year", short)
    assert len(subscription.chain("agreed")) == 2
    subscription.ends_like("curious", "left-in-the-trial", {"trial": "1h"}, signals=[{"at": "1m", "name": "leave"}])
    subscription.ends_like("leaver", "left-later", slow, signals=[{"at": "1m", "name": "leave"}])
    subscription.ends_like("broke", "declined", {**short, "card": "4000000000000002"})
    subscription.ends_like("free", "no-price")


def test_a_cancelled_subscription_refunds_the_payment(example: Use, namespace: Cluster) -> None:
    subscription = example("subscription")
    child = {"workflow": {"name": "subscription"}, "workflowId": "withdrawn", "input": {"trial": "1s", "period": "1h"}}
    offer = {
        "steps": [
            {
                "name": "offer",
                "parallel": {
                    "wait": "Any",
                    "branches": [{"name": "taken", "block": "take"}, {"name": "withdrawn", "block": "withdraw"}],
                },
            }
        ],
        "blocks": [
            {"name": "take", "steps": [{"name": "child", "childWorkflow": child}]},
            {"name": "withdraw", "steps": [{"name": "wait", "waitForSignal": {"name": "withdraw"}}]},
        ],
    }
    namespace.start("offer", {"inline": offer})
    subscription.until_asleep("withdrawn", "period.over/nap")
    subscription.signal("offer", "withdraw", "sold out")
    run = subscription.ended("withdrawn")

    file = EXAMPLES / "subscription" / "scenarios" / "cancelled.yaml"
    scenario = yaml.safe_load(file.read_text(encoding="utf-8"))
    for field in ("files", "expect", "cancelAt"):
        del scenario[field]
    scenario["workflow"] = "offer"
    scenario["signals"] = [{"at": "1m", "name": "withdraw", "input": "sold out"}]
    manifests = [*subscription.manifests(), run_manifest("offer", {"inline": offer})]
    report = Report(histories.play([Manifest("offer", one) for one in manifests], scenario, "offer"))
    assert outcome(subscription.ended("offer")["status"]) == simulated(report)
    (simulated_child,) = report.as_json()["children"]
    assert run["status"]["phase"] == simulated_child["phase"] == "Cancelled"
    assert activities_of(run) == [
        event["activityType"] for event in simulated_child["events"] if event["eventType"] == "ActivityTaskScheduled"
    ]
    assert activities_of(run)[-2:] == ["refund", "tell"]


def activities_of(run: Json) -> list[str]:
    return [event.activity_type for event in recorded(run) if isinstance(event, ev.ActivityTaskScheduled)]


@pytest.mark.slow
def test_a_trip_is_booked_or_compensated(example: Use) -> None:
    trips = example("trip-saga")
    broke = {"fare": "basic", "card": "4000000000000002"}
    trips.start("booked")
    trips.start("walker", {"cars": 0})
    trips.start("broke", broke)
    trips.ends_like("booked", "booked")
    trips.ends_like("walker", "no-car")
    status = trips.ends_like("broke", "declined")
    assert [undone["cause"]["type"] for undone in status["failure"]["suppressed"]] == ["NotRefundable"]


def test_an_approval_is_given_escalated_or_times_out(example: Use) -> None:
    approvals = example("approval")
    away = {"patience": "1s", "escalation": "1h"}
    approvals.start("given", {"patience": "1h"})
    approvals.start("escalated", away)
    approvals.start("missed", {"patience": "1s", "escalation": "1s"})
    approvals.until_asleep("given", "answer/race.over/nap")
    approvals.signal("given", "decision", {"approved": True, "by": "bob"})
    approvals.until_asleep("escalated", "manager/race.over/nap")
    approvals.signal("escalated", "decision", {"approved": False, "by": "eve"})
    approvals.ends_like("given", "approved")
    approvals.ends_like(
        "escalated",
        "escalated",
        away,
        signals=[{"at": "1m", "name": "decision", "input": {"approved": False, "by": "eve"}}],
    )
    approvals.ends_like("missed", "nobody-answers")


def test_orders_wait_while_the_circuit_is_open_and_failures_become_dead_letters(
    example: Use, namespace: Cluster
) -> None:
    orders = example("circuit-breaker")
    orders.start("orders", {"openFor": "1s"})
    orders.ends_like("orders", "gateway-down", {"openFor": "1s"})
    steps = ["charge[1]/charge", "charge[2]/charge", "charge[3]/charge", "charge[5]/charge"]

    def set_aside() -> list[Json] | None:
        letters = namespace.list("deadletters")
        return letters if len(letters) >= len(steps) else None

    letters = namespace.wait("the dead letters", set_aside)
    assert sorted(letter["spec"]["step"] for letter in letters) == steps


def test_a_text_is_counted_by_children(example: Use) -> None:
    counts = example("map-reduce")
    counts.start("count")
    counts.ends_like("count", "three-parts")


def test_polling_continues_in_new_runs_until_it_succeeds(example: Use, namespace: Cluster) -> None:
    polling = example("polling")
    often = {"every": "1s", "looks": 2}
    polling.start("export", often)
    namespace.wait("a second run to look", lambda: len(polling.chain("export")) > 1)
    namespace("create", "configmap", "export-status", "--from-literal=rows=1200", "--from-literal=file=export-17.csv")
    polling.ends_like("export", "done", often)


def test_the_faster_mirror_wins_unless_none_responds(example: Use, namespace: Cluster) -> None:
    race = example("race")
    far = {"blocks": 4, "blockTime": 20}
    late = {"near": {"blocks": 40, "blockTime": 20}, "far": {"blocks": 40, "blockTime": 20}, "deadline": "10s"}
    race.start("won", {"near": {"blocks": 4, "blockTime": 0}, "far": far})
    race.start("late", late)
    race.ends_like("won", "near-wins", {"near": {"blocks": 4, "blockTime": 0}, "far": far})
    race.ends_like("late", "nobody-in-time", late)
    (run,) = race.chain("won")
    assert [e.activity_id for e in recorded(run) if isinstance(e, ev.ActivityTaskCanceled)] == ["fetch.far/fetch"]

    def held() -> list[str]:
        return [pod["metadata"]["name"] for pod in namespace.list("pods") if pod["metadata"].get("finalizers")]

    namespace.wait("no pod to be held", lambda: not held())


def test_every_kind_of_work_runs(example: Use) -> None:
    work = example("work")
    work.start("one")
    work.ends_like("one", "done")


def test_a_run_uses_cached_results_of_an_earlier_run(example: Use, namespace: Cluster) -> None:
    caching = example("caching")
    for run in ("first", "second"):
        caching.start(run)
        caching.ends_like(run, "counted")
    (second,) = caching.chain("second")
    completed = [event for event in recorded(second) if isinstance(event, ev.ActivityTaskCompleted)]
    assert [bool(event.cached) for event in completed] == [True, True, True]
    assert not [pod for pod in namespace.list("pods") if pod["metadata"]["name"].startswith("second-")]


@pytest.fixture
def volume(namespace: Cluster) -> Iterator[None]:
    """A volume for the claim of a run."""
    with local_volume(namespace, f"files-{namespace.namespace}"):
        yield


@pytest.mark.usefixtures("volume")
def test_files_are_passed_in_a_workspace(example: Use, namespace: Cluster) -> None:
    files = example("files")
    files.start("one")
    files.ends_like("one", "read")
    pods = [pod for pod in namespace.list("pods") if pod["metadata"]["labels"]["perdure.dev/run"] == "one"]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1

    def released() -> bool:
        return all("deletionTimestamp" in claim["metadata"] for claim in namespace.list("persistentvolumeclaims"))

    namespace.wait("the claim to be deleted", released)


def test_a_release_runs_in_the_order_of_its_graph(example: Use) -> None:
    releases = example("graph")
    broken = yaml.safe_load((EXAMPLES / "graph" / "scenarios" / "tests-fail.yaml").read_text(encoding="utf-8"))["input"]
    releases.start("good")
    releases.start("manual", {"manual": True})
    releases.start("broken", broken)
    releases.ends_like("good", "released")
    assert releases.ends_like("manual", "released", {"manual": True})["output"]["manual"] == "Succeeded"
    releases.ends_like("broken", "tests-fail")


def test_a_sweep_continues_after_a_failure_and_reports_within_its_own_limit(example: Use) -> None:
    sweeps = example("sweep")
    slow = {"rates": [1, 9], "limit": "40s"}
    sweeps.start("all", {"rates": [1, 2, 4]})
    sweeps.start("diverged")
    sweeps.start("slow", slow)
    sweeps.ends_like("all", "all-trained")
    sweeps.ends_like("diverged", "one-rate-diverges")
    status = sweeps.ends_like("slow", "too-slow", slow)
    assert status["conditions"][0]["reason"] == "DeadlineExceeded"
    assert "`train[2]`" in sweeps.ended("diverged")["status"]["conditions"][0]["message"]


def test_a_pipeline_uses_the_activities_and_the_failure_handler_of_its_library(example: Use) -> None:
    pipeline = example("reuse")
    pipeline.start("rows")
    pipeline.start("none", {"rows": 0})
    status = pipeline.ends_like("rows", "loaded")
    assert [source["workflow"] for source in status["sources"]] == ["team-library"]
    pipeline.ends_like("none", "no-rows", {"rows": 0})


def test_pipelines_take_the_failure_handler_and_the_labels_of_their_namespace(example: Use, namespace: Cluster) -> None:
    pipeline = example("defaults")
    namespace.condition("workflowdefaults", "default", "Accepted")
    pipeline.start("rows")
    pipeline.start("none", {"rows": 0})
    status = pipeline.ends_like("none", "no-rows", {"rows": 0})
    assert [each.get("workflow") or each["workflowDefaults"] for each in status["sources"]] == [
        "team-library",
        "default",
    ]
    assert namespace.closed("rows")["output"] == 3
    run = namespace.get("workflowrun", "rows")
    assert run is not None
    assert run["metadata"]["labels"]["team"] == "warehouse"
    pods = namespace.list("pods")
    assert {pod["metadata"]["labels"]["team"] for pod in pods} == {"warehouse"}
    (container,) = next(pod for pod in pods if pod["metadata"]["name"].startswith("rows-"))["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "10m", "memory": "32Mi"}


def test_frames_on_nodes_that_are_taken_away_are_rendered_again_or_elsewhere(example: Use, namespace: Cluster) -> None:
    """A program that exits with 0 when it is stopped has not rendered its frame (argo-workflows#12231, airflow#53015)."""
    render = example("spot")
    render.start("all")
    render.start("drained", {"frames": [1], "seconds": 600})
    for attempt in (1, 2, 3):
        namespace.pod(f"drained-2-{attempt}", "Running")
        namespace("delete", "pod", f"drained-2-{attempt}", "--wait=false")
    assert namespace.pending("drained", activity="on-demand")["attempt"] == 1
    render.ends_like("all", "rendered")


def test_a_writer_waits_for_the_end_of_one_that_hangs(example: Use, namespace: Cluster) -> None:
    """The containers of two attempts do not overlap (kubernetes#115844): the first ignores SIGTERM for 10 seconds."""
    imports = example("exclusive")
    imports.start("one")
    waiting = namespace.pending("one", activity="write", attempt=2, state="Scheduled")
    assert "pod one-5-1 of an earlier attempt is still being stopped" in waiting["waitingReason"]
    imports.ends_like("one", "hangs")


def test_a_deployment_holds_its_limits_until_it_has_ended(example: Use, namespace: Cluster) -> None:
    deploys = example("deploy")
    deploys.start("alone", {"environment": "staging", "version": "1.4"})
    assert deploys.ends_like("alone", "deployed")["phase"] == "Completed"
    for name in ("environment", "deployments", "builds", "activities-of-deployments"):
        namespace.wait(f"{name} to be released", lambda n=name: _holders(namespace, n) == [])


def test_databases_take_turns_in_maintenance(example: Use, namespace: Cluster) -> None:
    maintenance = example("maintenance")
    for name in ("first", "second"):
        maintenance.start(name)
    for name in ("first", "second"):
        assert maintenance.ends_like(name, "migrated")["phase"] == "Completed"
    for name in ("database", "maintenance"):
        namespace.wait(f"{name} to be released", lambda n=name: _holders(namespace, n) == [])
    namespace("apply", "-f", str(EXAMPLES / "maintenance" / "closed.yaml"))
    impatient = maintenance.manifests()[0]
    impatient["spec"]["steps"][0]["limits"][1]["waitTimeout"] = "1s"
    namespace.apply(impatient)
    maintenance.start("closed")
    assert maintenance.ended("closed")["status"]["output"] == [f"{each}: postponed" for each in _DATABASES]


def _holders(cluster: Cluster, limit: str) -> list[str]:
    found = cluster.get("workflowlimit", limit)
    assert found is not None
    return [each["run"] for each in found["status"]["holders"]]


def test_an_open_run_keeps_the_definition_with_which_it_started(namespace: Cluster) -> None:
    approvals = Example(namespace, "approval")
    approvals.start("old", {"patience": "1h"})
    approvals.until_asleep("old", "answer/race.over/nap")
    (changed,) = approvals.manifests()
    changed["spec"]["steps"][0]["activity"]["input"]["person"] = "${input.manager}"
    changed["spec"]["output"] = "changed"
    namespace.apply(changed)
    approvals.start("new", {"patience": "1s", "escalation": "1s"})
    approvals.signal("old", "decision", {"approved": True, "by": "bob"})
    approvals.ends_like("old", "approved")
    assert approvals.ended("new")["status"]["output"] == "changed"

    (history,) = histories.exported(approvals.chain("old"))
    assert history.difference() is None
    reported = history.difference(changed["spec"])
    assert reported is not None
    assert reported.startswith("does not replay: event 2 differs")
    assert '"person":"bob"' in reported
    assert '"person":"eve"' in reported


def test_a_service_is_ready_before_its_activity(example: Use) -> None:
    """The service sleeps before it listens, and the activity tries once."""
    services = example("services")
    services.start("services")
    services.ends_like("services", "asked")
