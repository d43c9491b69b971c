"""Runs that exceed the size limit of an object: each is closed or reported with the reason, and never retried forever."""

import pytest
import yaml

from perdure.engine import events as ev
from support.cluster.namespace import Cluster, check_history, one_step, python, recorded, run_manifest

pytestmark = pytest.mark.cluster

FILLED = 250_000
"""Bytes of a payload that is allowed, but takes a good part of an object."""
OBJECT = 1_572_864
"""Bytes that etcd takes by default for one object."""


def padded(code: str, size: int, **options: object) -> dict[str, object]:
    """An activity whose definition alone has that many bytes."""
    work = python(code, **options)
    work["container"]["env"] = [{"name": "PADDING", "value": "x" * size}]
    return work


def test_a_run_that_changes_more_values_than_a_patch_can_hold_continues(namespace: Cluster) -> None:
    values = {letter: {f"k{n}": at for n in range(10_500)} for at, letter in enumerate("ab")}
    steps = [
        {"name": "first", "set": {"big": "${input.a}"}},
        {"name": "nap", "sleep": {"duration": "1s"}},
        {"name": "second", "set": {"big": "${input.b}"}},
        {"name": "again", "sleep": {"duration": "1s"}},
        {"name": "end", "return": {"output": "${vars.big.k9}"}},
    ]
    namespace.start("wide", {"input": values, "inline": {"steps": steps}})
    assert namespace.closed("wide")["output"] == 1


def test_a_run_whose_status_does_not_fit_next_to_its_spec_is_terminated_immediately(namespace: Cluster) -> None:
    work = padded("pass", 1_150_000)
    namespace.start("stout", one_step(work, input="x" * FILLED))
    status = namespace.closed("stout")
    assert status["phase"] == "Terminated"
    assert "larger than the API server accepts" in status["failure"]["message"]
    assert not namespace.list("pods")


def test_a_run_that_outgrows_its_object_is_terminated_and_keeps_its_history(namespace: Cluster) -> None:
    work = padded(f"activity.main({{'work': lambda _: 'x' * {FILLED}}})", 100_000, resultSize="Large")
    unused = padded("pass", 800_000, name="unused")
    steps = [{"name": f"step-{number}", "activity": {"name": "work"}} for number in range(4)]
    namespace.start("grows", {"inline": {"activities": [work, unused], "steps": steps}})
    status = namespace.closed("grows")
    assert status["phase"] == "Terminated"
    # Its events were sealed and take no space; its output, which contains all results, would.
    assert "return less from activities" in status["failure"]["message"]
    run = namespace.with_history("grows")
    check_history(run)
    assert any(isinstance(event, ev.ActivityTaskCompleted) for event in recorded(run))


def test_a_run_whose_spec_fills_the_object_is_reported_and_not_retried(namespace: Cluster) -> None:
    # The largest object that etcd accepts: nothing can be added to it.
    for size in range(OBJECT - 600, OBJECT - 8_000, -100):
        body = yaml.safe_dump(run_manifest("full", one_step(padded("pass", size))))
        if namespace.run("create", "-f", "-", stdin=body).returncode == 0:
            break

    def reported() -> list[str]:
        events = namespace.list("events.v1.events.k8s.io")
        return [e["note"] for e in events if e["regarding"]["name"] == "full" and e["reason"] == "PayloadTooLarge"]

    namespace.wait("an Event", reported)
    assert "larger than the API server accepts" in reported()[0]
    assert not namespace.list("pods")
