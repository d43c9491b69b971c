"""Simulated steps that wait for WorkflowLimits."""

from unit.simulation.stage import Json, play

TAKES = """
steps:
- name: work
  forEach: {items: [a, b]}
  limits: [{name: pool, key: "${item}"}, {name: shared}]
  sleep: {duration: 1m}
"""


def limit(name: str) -> Json:
    return {"apiVersion": "perdure.dev/v1alpha1", "kind": "WorkflowLimit", "metadata": {"name": name}, "spec": {}}


def test_the_timeline_shows_the_wait_for_limits_and_their_release() -> None:
    played = play(TAKES, "{}", limit("pool"), limit("shared"))
    assert (played.phase, played.elapsed) == ("Completed", 120)
    timeline = [
        ((each.time - played.report.transcript.timeline[0].time).total_seconds(), each.path, each.word, each.detail)
        for each in played.report.transcript.timeline
        if each.path.endswith(":limits")
    ]
    assert timeline == [
        (0, "work[0]:limits", "Waiting", "for `pool` (key `a`), `shared`"),
        (0, "work[1]:limits", "Waiting", "for `pool` (key `b`), `shared`"),
        (0, "work[0]:limits", "Succeeded", ""),
        (60, "work[0]:limits", "Succeeded", "released"),
        (60, "work[1]:limits", "Succeeded", ""),
        (120, "work[1]:limits", "Succeeded", "released"),
    ]
