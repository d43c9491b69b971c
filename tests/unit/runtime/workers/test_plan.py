"""The plan of a WorkerDeployment: pods of each version, routing, and what is removed."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from perdure.api.kinds.workerdeployment import WorkerDeploymentSpec
from perdure.runtime.workers.plan import (
    CHECK_RUNNING,
    CHECK_STARTING,
    PATIENCE,
    Deployed,
    Facts,
    Load,
    Plan,
    Route,
    Version,
    plan,
    with_memory,
)

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
TEMPLATE = "t"
MINUTE = timedelta(minutes=1)
WAITS = Load(waiting=1, since=NOW)


def spec_of(**fields: Any) -> WorkerDeploymentSpec:
    template = {"spec": {"containers": [{"name": "worker", "image": "worker:1"}]}}
    return WorkerDeploymentSpec.parse({"taskQueues": ["etl"], "podTemplate": template, **fields})


def deployed(replicas: int = 1, ready: int | None = None, problem: str = "", template: str = TEMPLATE) -> Deployed:
    found = replicas if ready is None else ready
    return Deployed(replicas=replicas, ready=found, template=template, created=NOW - 60 * MINUTE, problem=problem)


def version(build: str, pods: Deployed | None = None, *, idle: timedelta = timedelta(0), **fields: Any) -> Version:
    """A registered version that last had a task `idle` ago."""
    then = NOW - idle
    known = {"known": True, "registered": True, "active": then, "strained": then, "scaled": NOW - 60 * MINUTE}
    return Version(build_id=build, **{"deployed": pods, **known, **fields})


def planned(*versions: Version, target: str = "a", spec: WorkerDeploymentSpec | None = None, **routing: Any) -> Plan:
    facts = Facts(versions={each.build_id: each for each in versions}, **routing)
    return plan(spec or spec_of(), target, TEMPLATE, facts, NOW)


def pods(found: Version, spec: WorkerDeploymentSpec | None = None) -> int | None:
    """The planned pods of the current version."""
    return planned(found, current="a", spec=spec).replicas["a"]


# Start and routing


def test_a_new_version_starts_one_pod_and_gets_no_runs_before_its_workers_poll() -> None:
    found = planned()
    assert (found.replicas, found.route) == ({"a": 1}, None)
    found = planned(version("a", deployed(ready=0), known=False, registered=False))
    assert (found.replicas, found.route, found.due) == ({"a": 1}, None, NOW + CHECK_STARTING)


def test_the_first_version_becomes_current_at_once_even_with_ramp_steps() -> None:
    steps = spec_of(versioning={"steps": [{"percentage": 10, "pause": "10m"}]})
    assert planned(version("a", deployed()), spec=steps).route == Route("a")


@pytest.mark.parametrize(
    ("percentage", "since", "want"),
    [
        (0, None, Route("b", 10)),
        (10, 9 * MINUTE, None),
        (10, 10 * MINUTE, Route("b", 50)),
        (50, 4 * MINUTE, None),
        (50, 5 * MINUTE, Route("b")),
        (30, 1 * MINUTE, Route("b", 50)),
        (60, 1 * MINUTE, Route("b")),
    ],
    ids=["begins", "pauses", "next share", "pauses again", "becomes current", "steps changed", "beyond the last step"],
)
def test_a_new_version_takes_the_ramp_steps(percentage: int, since: timedelta | None, want: Route | None) -> None:
    steps = [{"percentage": 10, "pause": "10m"}, {"percentage": 50, "pause": "5m"}]
    ramp = {"ramping": "b", "percentage": percentage, "ramped": NOW - since} if since is not None else {}
    found = planned(
        version("a", deployed()),
        version("b", deployed()),
        target="b",
        spec=spec_of(versioning={"steps": steps}),
        current="a",
        **ramp,
    )
    assert found.route == want


def test_a_ramp_step_is_due_when_its_pause_ends() -> None:
    spec = spec_of(versioning={"steps": [{"percentage": 10, "pause": "7s"}]})
    both = version("a", deployed()), version("b", deployed())
    found = planned(*both, target="b", spec=spec, current="a", ramping="b", percentage=10, ramped=NOW)
    assert found.due == NOW + timedelta(seconds=7)


def test_a_rollback_during_a_ramp_ends_the_ramp() -> None:
    both = version("a", deployed()), version("b", deployed())
    assert planned(*both, target="a", current="a", ramping="b", percentage=10, ramped=NOW).route == Route("", 0)


def test_a_rollback_to_a_version_that_still_exists_needs_no_new_poll() -> None:
    old = version("a", deployed(0), deactivated=True, drained=True)
    found = planned(old, version("b", deployed()), target="a", current="b")
    assert found.route == Route("a")
    assert found.remove == []


def test_manual_routing_starts_a_version_and_leaves_the_routing_alone() -> None:
    manual = spec_of(versioning={"routing": "Manual"})
    both = version("a", deployed()), version("b", deployed())
    found = planned(*both, target="b", spec=manual, current="a")
    assert (found.route, found.replicas) == (None, {"a": 1, "b": 1})


def test_a_changed_template_of_a_given_build_is_updated_in_place() -> None:
    assert planned(version("a", deployed(template="earlier")), current="a").update
    assert not planned(version("a", deployed()), current="a").update


# Pods


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (version("a", deployed(0), idle=60 * MINUTE), 0),
        (version("a", deployed(0), load=WAITS), 1),
        (version("a", deployed(0), load=replace(WAITS, waiting=35)), 4),
        (version("a", deployed(0), load=replace(WAITS, waiting=1000)), 10),
        (version("a", deployed(2), load=replace(WAITS, waiting=9)), 2),
        (version("a", deployed(2), load=replace(WAITS, waiting=1, since=NOW - PATIENCE)), 3),
        (version("a", deployed(2), load=replace(WAITS, waiting=30)), 5),
        (version("a", deployed(2), load=replace(WAITS, waiting=300)), 10),
        (version("a", deployed(5, ready=2), load=replace(WAITS, waiting=300)), 5),
        (version("a", deployed(2), load=replace(WAITS, waiting=300, limited=True)), 2),
        (version("a", deployed(2), load=replace(WAITS, waiting=300), scaled=NOW - MINUTE / 2), 2),
        (version("a", deployed(2), load=replace(WAITS, waiting=300, last_used=NOW), scaled=NOW - MINUTE / 2), 10),
    ],
    ids=[
        "nothing waits",
        "from zero",
        "from zero by backlog",
        "at most maxReplicas",
        "few tasks that have just come",
        "one task for a while",
        "more for the backlog",
        "at most maxReplicas again",
        "others start",
        "a rate limit",
        "workers that do not poll yet",
        "workers that got a task",
    ],
)
def test_waiting_tasks_start_pods(found: Version, want: int) -> None:
    assert pods(found) == want


@pytest.mark.parametrize(
    ("found", "want"),
    [
        (version("a", deployed(4), idle=4 * MINUTE), 4),
        (version("a", deployed(4), idle=5 * MINUTE), 0),
        (version("a", deployed(4), idle=60 * MINUTE, load=Load(in_progress=1)), 4),
        (version("a", deployed(4), strained=NOW - 5 * MINUTE), 2),
        (version("a", deployed(1), strained=NOW - 5 * MINUTE), 1),
    ],
    ids=["not long", "idle", "a task in progress", "tasks do not wait", "the last one"],
)
def test_idle_pods_are_stopped(found: Version, want: int) -> None:
    assert pods(found) == want


def test_min_replicas_hold_for_versions_that_get_runs_and_not_for_old_ones() -> None:
    spec = spec_of(minReplicas=2)
    idle = 60 * MINUTE
    old = version("o", deployed(2), idle=idle, deactivated=True, open_runs=1)
    found = planned(
        version("a", deployed(2), idle=idle),
        version("b", deployed(2), idle=idle),
        old,
        target="b",
        spec=spec,
        current="a",
        ramping="b",
        percentage=10,
    )
    assert found.replicas == {"a": 2, "b": 2, "o": 0}


def test_a_version_that_fails_gets_no_more_pods() -> None:
    failing = deployed(3, ready=0, problem="CrashLoopBackOff")
    assert pods(version("a", failing, load=replace(WAITS, waiting=500))) == 1
    assert pods(version("a", deployed(0, problem=""), load=replace(WAITS, waiting=500))) == 10
    assert pods(version("a", failing)) == 1
    assert pods(version("a", failing, idle=60 * MINUTE)) == 0
    new = version("b", failing, known=False, registered=False)
    assert planned(new, version("a", deployed()), target="b", current="a").replicas["b"] == 1


def test_replicas_in_the_spec_are_set_once_and_left_to_an_autoscaler() -> None:
    spec = spec_of(replicas=3)
    busy = replace(WAITS, waiting=500)
    assert pods(version("a", deployed(1), load=busy), spec) == 3
    assert pods(version("a", deployed(3), load=busy), spec) is None
    zero = spec_of(replicas=0)
    assert planned(spec=zero).replicas == {"a": 1}, "a new version shows that it starts"
    assert pods(version("a", deployed(1), load=busy), zero) == 0


def test_old_versions_are_scaled_by_their_tasks_if_the_spec_has_replicas() -> None:
    old = version("o", deployed(0), deactivated=True, open_runs=1, load=WAITS)
    found = planned(version("a", deployed(3)), old, spec=spec_of(replicas=3), current="a")
    assert found.replicas == {"a": None, "o": 1}


# Old versions


def test_an_old_version_keeps_its_pods_for_the_runs_that_are_pinned_to_it() -> None:
    old = version("o", deployed(0), deactivated=True, open_runs=1, load=WAITS)
    found = planned(version("a", deployed()), old, current="a")
    assert (found.replicas["o"], found.remove, found.drained) == (1, [], {})


def test_an_old_version_is_removed_after_the_sunset_delay() -> None:
    drained = version("o", deployed(0), deactivated=True, drained=True)
    current = version("a", deployed())
    found = planned(current, drained, current="a")
    assert (found.remove, found.drained) == ([], {"o": NOW})
    found = planned(current, replace(drained, drained_time=NOW - 59 * MINUTE), current="a")
    assert found.remove == []
    assert found.due == NOW + CHECK_RUNNING
    found = planned(current, replace(drained, drained_time=NOW - 60 * MINUTE), current="a")
    assert (found.remove, found.forget) == (["o"], [])


@pytest.mark.parametrize(
    "changes",
    [{"open_runs": 1}, {"drained": False}, {"load": WAITS}, {"load": Load(in_progress=1)}],
    ids=["a run is pinned to it", "it was replaced moments ago", "a task waits", "a task is in progress"],
)
def test_an_old_version_that_something_needs_is_never_removed(changes: dict[str, Any]) -> None:
    old = replace(version("o", deployed(1), deactivated=True, drained=True), drained_time=NOW - 600 * MINUTE, **changes)
    found = planned(version("a", deployed()), old, current="a")
    assert (found.remove, found.drained) == ([], {})


def test_a_version_is_forgotten_once_its_deployment_is_gone_and_nobody_polls() -> None:
    gone = version("o", None, deactivated=True, drained=True)
    current = version("a", deployed())
    assert planned(current, gone, current="a").forget == ["o"]
    assert planned(current, replace(gone, polled=True), current="a").forget == []


def test_a_version_that_never_got_runs_is_removed_when_it_is_replaced() -> None:
    broken = version("b", deployed(ready=0, problem="ErrImagePull"), known=False, registered=False)
    found = planned(version("a", deployed()), broken, target="c", current="a")
    assert found.remove == ["b"]
    assert found.replicas == {"a": 1, "c": 1}


# Memory


def test_a_version_is_active_while_it_has_tasks_and_at_the_start_of_the_process() -> None:
    first = with_memory(version("a", deployed(), idle=60 * MINUTE), None, NOW)
    assert (first.active, first.strained) == (NOW, NOW)
    later = NOW + MINUTE
    assert with_memory(version("a", deployed()), first, later).active == NOW
    used = version("a", deployed(), load=Load(last_used=NOW + MINUTE / 2))
    assert with_memory(used, first, later).active == NOW + MINUTE / 2
    busy = version("a", deployed(), load=Load(in_progress=1))
    assert with_memory(busy, first, later).active == later


def test_tasks_that_wait_and_changes_of_the_pods_strain_a_version() -> None:
    first = with_memory(version("a", deployed()), None, NOW)
    later = NOW + MINUTE
    calm = with_memory(version("a", deployed()), first, later)
    assert (calm.strained, calm.scaled) == (NOW, NOW)
    assert with_memory(version("a", deployed(), load=WAITS), first, later).strained == later
    scaled = with_memory(version("a", deployed(2)), first, later)
    assert (scaled.strained, scaled.scaled) == (later, later)


def test_a_version_keeps_a_pod_while_the_tasks_at_other_members_are_not_known() -> None:
    idle = version("a", deployed(), idle=60 * MINUTE)
    old = version("b", deployed(), idle=60 * MINUTE, open_runs=1)
    assert planned(idle, old, current="a").replicas == {"a": 0, "b": 0}
    assert planned(idle, old, current="a", loads_known=False).replicas == {"a": 1, "b": 1}
