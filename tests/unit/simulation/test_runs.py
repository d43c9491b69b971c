"""Simulated runs: signals, pauses, cancellation, time; children, continuations, retries."""

import json

import msgspec
import pytest

from perdure.engine import history
from perdure.simulation.transcript import EndlessError
from unit.simulation.stage import play, workflow

SUBSCRIPTION = """
activities:
- {name: charge, startToCloseTimeout: 1m, container: {image: i}}
steps:
- {name: charge, activity: {name: charge, input: "${input.month}"}}
- {name: month, sleep: {duration: 30d}}
- {name: again, when: "${input.month < 12}", continueAsNew: {input: {month: "${input.month + 1}"}}}
- {name: done, return: {output: "${input.month}"}}
"""


def test_a_year_of_a_subscription_is_simulated_completely() -> None:
    played = play(SUBSCRIPTION, "input: {month: 1}")
    assert (played.phase, played.json["output"], played.json["runs"]) == ("Completed", 12, 12)
    assert played.elapsed == 12 * 30 * 86400
    assert len(played.attempts("charge")) == 12
    assert len(played.events("WorkflowExecutionContinuedAsNew")) == 11


POLLING = """
activities:
- {name: look, startToCloseTimeout: 1m, container: {image: i}}
steps:
- {name: look, activity: {name: look, input: "${input}"}}
- {name: pause, when: "${steps.look.output != 'done'}", sleep: {duration: 1h}}
- {name: again, when: "${steps.look.output != 'done'}", continueAsNew: {}}
- {name: end, return: {output: "${run.attempt}"}}
"""


def test_entries_are_used_in_order_across_continue_as_new() -> None:
    played = play(POLLING, "{input: job, activities: {look: [{output: no-no}, {output: no-no}, {output: done}]}}")
    assert (played.phase, played.json["runs"], played.elapsed) == ("Completed", 3, 7200)


def test_a_failed_run_is_retried_by_its_policy() -> None:
    run = {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "WorkflowRun",
        "metadata": {"name": "once"},
        "spec": {
            "workflow": {"name": "main"},
            "input": "x",
            "retryPolicy": {"exponential": {"maximumAttempts": 3, "initialInterval": "10s"}},
        },
    }
    spec = """
    activities:
    - {name: work, startToCloseTimeout: 1m, container: {image: i}, retryPolicy: {exponential: {maximumAttempts: 1}}}
    steps:
    - {name: work, activity: {name: work, input: "${input}"}}
    - {name: end, return: {output: "${run.attempt}"}}
    """
    played = play(spec, "activities: {work: [{fail: {}}, {fail: {}}, {output: 1}]}", run)
    assert (played.phase, played.json["output"], played.json["runs"]) == ("Completed", 3, 3)
    assert [start for start, _, _ in played.attempts("work")] == [0, 10, 30]
    played = play(spec, "activities: {work: [{fail: {}}]}", run)
    assert (played.phase, played.json["runs"]) == ("Failed", 3)


VOTES = """
steps:
- {name: first, waitForSignal: {name: vote}}
- {name: pause, sleep: {duration: 10s}}
- {name: second, waitForSignal: {name: vote, timeout: 1h}}
output: ["${steps.first.output}", "${steps.second.output}"]
"""


def test_signals_arrive_in_order_and_are_buffered() -> None:
    played = play(VOTES, "signals: [{at: 4, name: vote, input: b}, {at: 3s, name: vote, input: a}, {name: other}]")
    assert (played.json["output"], played.elapsed) == (["a", "b"], 13)


def test_a_missing_signal_times_out_its_step() -> None:
    played = play(VOTES, "signals: [{at: 5s, name: vote}]")
    assert (played.phase, played.elapsed) == ("Failed", 15 + 3600)
    assert played.steps() == {"first": "Succeeded", "pause": "Succeeded", "second": "Failed"}


def test_a_run_that_waits_forever_is_running_and_shows_what_it_waits_for() -> None:
    played = play(VOTES)
    assert (played.phase, played.json["waitsFor"]) == ("Running", ["step `first`: signal `vote`"])
    assert played.json["output"] is None
    assert played.steps() == {"first": "Running", "pause": "NotReached", "second": "NotReached"}


ONE_THEN_VOTE = """
activities: [{name: work, startToCloseTimeout: 1h, container: {image: i}}]
steps:
- {name: loop, forEach: {items: [1, 2], maxConcurrency: 1}, activity: {name: work}}
- {name: vote, waitForSignal: {name: vote}}
"""


@pytest.mark.parametrize(("end", "vote"), [("", "Running"), ("terminateAt: 1m", "Stopped")])
def test_the_tree_of_a_run_without_a_last_command_is_that_of_its_end(end: str, vote: str) -> None:
    """Found by an audit: an open run and a terminated one showed the steps as of their last recorded command."""
    played = play(ONE_THEN_VOTE, f"{{activities: {{work: [{{after: 20s}}]}}, {end}}}")
    assert played.steps() == {"loop": "Succeeded", "loop[0]": "Succeeded", "loop[1]": "Succeeded", "vote": vote}


WORK_AND_SLEEP = """
activities:
- {name: work, startToCloseTimeout: 1h, container: {image: i}}
- {name: slow, startToCloseTimeout: 1h, heartbeatTimeout: 1m, container: {image: i}}
- {name: tidy, startToCloseTimeout: 1h, container: {image: i}}
blocks:
- {name: tidy, steps: [{name: tidy, activity: {name: tidy}}]}
onCancel: {block: tidy}
steps:
- {name: work, activity: {name: %s, cancellationType: WaitCancellationCompleted}}
- {name: nap, sleep: {duration: 10s}}
"""


def test_a_pause_prevents_the_next_attempt() -> None:
    played = play(
        WORK_AND_SLEEP % "work", "{pauseAt: 1s, unpauseAt: 1m, activities: {work: [{fail: {}, after: 2s}, {}]}}"
    )
    assert played.attempts("work") == [(0, 2, "Failed"), (60, 60, "Completed")]
    assert (played.phase, played.elapsed) == ("Completed", 70)


def test_a_run_that_remains_paused_shows_it() -> None:
    played = play(WORK_AND_SLEEP % "work", "pauseAt: 0")
    assert (played.phase, played.json["waitsFor"][0]) == ("Paused", "the run is paused")


@pytest.mark.parametrize(
    ("activity", "entry", "stopped"),
    [
        ("work", "{after: 100s}", (5, "Cancelled")),
        ("slow", "{after: 100s, heartbeats: {every: 20s}}", (20, "Cancelled")),
        ("slow", "{after: 10s, heartbeats: {every: 20s}}", (10, "Completed")),
        ("slow", "{after: 100s}", (5, "Cancelled")),
        ("work", "{after: 20s, ignoresCancel: true}", (20, "Completed")),
        ("work", "{after: 100s, ignoresCancel: true}", (35, "Cancelled")),
        ("slow", "{after: 100s, ignoresCancel: true}", (100, "Completed")),
        ("slow", "{after: 100s, fail: {}, ignoresCancel: true}", (100, "Failed")),
    ],
)
def test_an_attempt_stops_when_it_receives_the_cancellation(
    activity: str, entry: str, stopped: tuple[float, str]
) -> None:
    played = play(
        WORK_AND_SLEEP % activity, f"{{cancelAt: 5s, activities: {{{activity}: [{entry}], tidy: [{{after: 3s}}]}}}}"
    )
    end, outcome = stopped
    assert played.attempts(activity) == [(0, end, outcome)]
    assert (played.phase, played.elapsed) == ("Cancelled", end + 3)
    assert played.attempts("tidy") == [(end, end + 3, "Completed")]


def test_a_terminated_run_runs_no_handlers() -> None:
    played = play(WORK_AND_SLEEP % "work", "{terminateAt: 5s, activities: {work: [{hang: true}]}}")
    assert (played.phase, played.elapsed) == ("Terminated", 5)
    assert played.attempts("work") == [(0, 5, "Stopped")]
    assert played.attempts("tidy") == []
    assert played.steps()["work"] == "Stopped"


def test_requests_after_the_end_are_reported_as_skipped() -> None:
    played = play(WORK_AND_SLEEP % "work", "{cancelAt: 1h, signals: [{at: 2h, name: late}]}")
    assert (played.phase, played.elapsed) == ("Completed", 10)
    details = [moment.detail for moment in played.report.transcript.timeline if moment.word == "Skipped"]
    assert [what.split(" ")[0] for what in details] == ["`cancel`", "`late`"]


@pytest.mark.parametrize(("field", "phase"), [("runTimeout: 30s", "TimedOut"), ("executionTimeout: 1h", "Completed")])
def test_timeouts_of_the_run_apply(field: str, phase: str) -> None:
    name, value = field.split(": ")
    inline = workflow("steps: [{name: nap, sleep: {duration: 1m}}]")["spec"]
    run = {"kind": "WorkflowRun", "metadata": {"name": "r"}, "spec": {"inline": inline, name: value}}
    played = play(run | {"apiVersion": "perdure.dev/v1alpha1"})
    assert played.phase == phase


def test_a_start_delay_applies() -> None:
    inline = workflow("steps: [{name: nap, sleep: {duration: 1m}}]")["spec"]
    run = {"kind": "WorkflowRun", "metadata": {"name": "r"}, "spec": {"inline": inline, "startDelay": "10s"}}
    assert play(run | {"apiVersion": "perdure.dev/v1alpha1"}).elapsed == 70


def test_an_input_that_violates_the_schema_fails_the_run() -> None:
    spec = "{input: {schema: {type: object, required: [id]}}, steps: [{name: a, return: {}}]}"
    played = play(spec, "input: {}")
    assert (played.phase, played.json["failure"]["type"]) == ("Failed", "InvalidInput")


LIMIT = {
    "apiVersion": "perdure.dev/v1alpha1",
    "kind": "WorkflowLimit",
    "metadata": {"name": "one"},
    "spec": {"capacity": 1},
}


def test_a_limit_whose_key_has_no_value_fails_the_run() -> None:
    spec = "{limits: [{name: one, key: '${input.customer}'}], steps: [{name: nap, sleep: {duration: 10s}}]}"
    played = play(spec, "{}", LIMIT)
    assert (played.phase, played.json["failure"]["type"]) == ("Failed", "ExpressionError")
    assert played.steps() == {"nap": "NotReached"}


def test_a_run_that_never_starts_is_an_error_with_the_reason() -> None:
    full = LIMIT | {"spec": {"capacity": 0}}
    spec = "{limits: [{name: one}], steps: [{name: nap, sleep: {duration: 10s}}]}"
    with pytest.raises(EndlessError, match=r"never starts: WorkflowLimit `one` is full: it allows 0 runs.*`cancelAt`"):
        play(spec, "{}", full)
    ended = play(spec, "cancelAt: 5s", full)
    assert (ended.phase, ended.elapsed, ended.steps()) == ("Cancelled", 5, {"nap": "NotReached"})


TWO_PARTS = """
steps:
- {name: a, childWorkflow: {workflow: {name: part}, workflowId: %s}, needs: []}
- {name: b, childWorkflow: {workflow: {name: part}, workflowId: %s}, needs: []}
failurePolicy: FinishRunning
"""
PART = "{limits: [{name: one, waitTimeout: %s}], steps: [{name: work, sleep: {duration: 10s}}]}"


@pytest.mark.parametrize(
    ("ids", "wait", "type_", "seconds"),
    [(("x", "y"), "2s", "LimitReached", 2), (("x", "x"), "1h", "WorkflowExecutionAlreadyStarted", 0)],
)
def test_a_child_is_refused_because_of_another_run(ids: tuple[str, str], wait: str, type_: str, seconds: int) -> None:
    played = play(TWO_PARTS % ids, "{}", LIMIT, workflow(PART % wait, "part"))
    assert played.phase == "Failed"
    assert played.json["failure"]["cause"]["type"] == type_
    assert played.elapsed == 10, "the other child completes"
    assert played.events("ChildWorkflowExecutionFailed", "StartChildWorkflowExecutionFailed")[0][0] == seconds
    assert played.steps() == {"a": "Succeeded", "b": "Failed"}


def test_a_child_that_waits_for_a_limit_is_cancelled() -> None:
    played = play(TWO_PARTS % ("x", "y"), "cancelAt: 3s", LIMIT, workflow(PART % "1h", "part"))
    assert (played.phase, played.elapsed) == ("Cancelled", 3)
    assert played.steps() == {"a": "Cancelled", "b": "Cancelled"}


WORKER = """
activities: [{name: reserve, startToCloseTimeout: 1m, %s worker: {type: Reserve, taskQueue: orders}}]
steps: [{name: reserve, activity: {name: reserve}}]
"""


def test_an_activity_of_a_worker_waits_until_its_timeout() -> None:
    waiting = play(WORKER % "")
    assert (waiting.phase, waiting.steps()) == ("Running", {"reserve": "Running"})
    ended = play(WORKER % "scheduleToStartTimeout: 10m,")
    assert (ended.phase, ended.elapsed, ended.steps()) == ("Failed", 600, {"reserve": "Failed"})


PARENT = """
activities:
- {name: after, startToCloseTimeout: 1m, container: {image: i}}
steps:
- name: invoice
  childWorkflow: {workflow: {name: invoice}, workflowId: the-invoice, input: {id: 7}, parentClosePolicy: %s}
  catch: [{errorTypes: [Broke], call: {block: mend}}]
- {name: after, activity: {name: after, input: "${steps.invoice.output}"}}
output: "${steps.invoice.output}"
blocks:
- {name: mend, steps: [{name: set, set: {mended: true}}], output: mended}
"""
INVOICE = """
activities:
- {name: print, startToCloseTimeout: 1m, container: {image: i}, retryPolicy: {exponential: {maximumAttempts: 2}}}
steps:
- {name: print, activity: {name: print, input: "${input.id}"}}
- {name: wait, waitForSignal: {name: paid}}
output: "${steps.wait.output}"
"""


def test_a_child_with_a_known_workflow_is_simulated() -> None:
    paid = "signals: [{at: 1m, name: paid, workflowId: the-invoice, input: 9}]"
    scenario = f"{{workflow: main, activities: {{print: [{{fail: {{}}}}, {{after: 5s}}]}}, {paid}}}"
    played = play(PARENT % "Terminate", scenario, workflow(INVOICE, "invoice"))
    assert (played.phase, played.json["output"], played.elapsed) == ("Completed", 9, 60)
    child = played.child("invoice")
    assert (child["phase"], child["output"], child["end"]) == ("Completed", 9, 60)
    assert played.attempts("print") == [(0, 0, "Failed"), (1, 6, "Completed")]
    assert [e[1] for e in played.events()[1:4]] == [
        "StartChildWorkflowExecutionInitiated",
        "ChildWorkflowExecutionStarted",
        "ChildWorkflowExecutionCompleted",
    ]


def test_the_workflow_that_is_not_a_child_is_simulated() -> None:
    assert play(workflow(INVOICE, "invoice"), "{}", workflow(PARENT % "Abandon")).json["workflow"] == "main"


@pytest.mark.parametrize(
    ("policy", "want"), [("Terminate", "Terminated"), ("RequestCancel", "Cancelled"), ("Abandon", "Running")]
)
def test_a_child_follows_its_parent_close_policy(policy: str, want: str) -> None:
    played = play(PARENT % policy, "terminateAt: 10s", workflow(INVOICE, "invoice"))
    assert (played.phase, played.elapsed, played.child("invoice")["phase"]) == ("Terminated", 10, want)


def test_an_abandoned_child_continues_after_its_parent() -> None:
    signals = "signals: [{at: 1m, name: paid, workflowId: the-invoice, input: 9}]"
    played = play(PARENT % "Abandon", f"{{terminateAt: 10s, {signals}}}", workflow(INVOICE, "invoice"))
    assert (played.elapsed, played.child("invoice")["phase"], played.child("invoice")["end"]) == (10, "Completed", 60)


def test_a_cancelled_parent_cancels_its_child_and_waits_for_it() -> None:
    played = play(PARENT % "Terminate", "cancelAt: 10s", workflow(INVOICE, "invoice"))
    assert (played.phase, played.child("invoice")["phase"]) == ("Cancelled", "Cancelled")
    assert played.steps()["invoice"] == "Cancelled"


@pytest.mark.parametrize(
    ("entry", "phase", "output"),
    [
        ("{output: 99, after: 1h}", "Completed", 99),
        ("{fail: {type: Broke}, after: 1h}", "Completed", "mended"),
        ("{fail: {type: Other}, after: 1h}", "Failed", None),
    ],
)
def test_a_child_can_be_scripted(entry: str, phase: str, output: object) -> None:
    played = play(PARENT % "Terminate", f"children: {{invoice: [{entry}]}}")
    assert (played.phase, played.json["output"], played.elapsed) == (phase, output, 3600)


def test_a_scripted_child_is_cancelled_with_its_parent() -> None:
    played = play(PARENT % "Terminate", "{cancelAt: 10s, children: {invoice: [{hang: true}]}}")
    assert (played.phase, played.elapsed, played.child("invoice")["phase"]) == ("Cancelled", 10, "Cancelled")


def test_a_child_that_continues_as_new_is_one_child() -> None:
    child = """
    steps:
    - {name: nap, sleep: {duration: 1h}}
    - {name: again, when: "${input.id < 9}", continueAsNew: {input: {id: "${input.id + 1}"}}}
    - {name: end, return: {output: "${input.id}"}}
    """
    played = play(PARENT % "Terminate", "{}", workflow(child, "invoice"))
    assert (played.json["output"], played.elapsed, played.child("invoice")["runs"]) == (9, 3 * 3600, 3)


def test_a_workflow_id_is_open_only_once() -> None:
    spec = """
    steps:
    - {name: a, childWorkflow: {workflow: {name: invoice}, workflowId: same}, needs: []}
    - {name: b, childWorkflow: {workflow: {name: invoice}, workflowId: same}, needs: []}
    """
    played = play(spec, "children: {invoice: [{hang: true}]}")
    assert played.phase == "Failed"
    assert played.json["failure"]["cause"]["type"] == "WorkflowExecutionAlreadyStarted"


def test_runs_signal_each_other_by_workflow_id() -> None:
    parent = """
    steps:
    - {name: child, needs: [], childWorkflow: {workflow: {name: child}, workflowId: kid}}
    - {name: nap, needs: [], sleep: {duration: 5s}}
    - {name: call, needs: [nap], signal: {workflowId: kid, name: go, input: now}}
    - {name: answer, needs: [call], waitForSignal: {name: done}}
    output: "${steps.answer.output}"
    """
    child = """
    steps:
    - {name: wait, waitForSignal: {name: go}}
    - {name: notify, signal: {workflowId: main, name: done, input: "heard ${steps.wait.output}"}}
    """
    played = play(parent, "{}", workflow(child, "child"))
    assert (played.phase, played.json["output"], played.elapsed) == ("Completed", "heard now", 5)


def test_a_signal_to_a_missing_run_fails_its_step() -> None:
    played = play("steps: [{name: call, signal: {workflowId: nobody, name: go}}]")
    assert played.phase == "Failed"
    assert played.json["failure"]["type"] == "ExternalWorkflowExecutionNotFound"


def test_the_tree_contains_blocks_branches_and_compensations() -> None:
    spec = """
    activities:
    - {name: work, startToCloseTimeout: 1m, container: {image: i}, retryPolicy: {exponential: {maximumAttempts: 1}}}
    blocks:
    - {name: fast, steps: [{name: nap, sleep: {duration: 1s}}]}
    - {name: slow, steps: [{name: nap, sleep: {duration: 1h}}]}
    - {name: mend, steps: [{name: work, activity: {name: work, input: mend}}]}
    steps:
    - name: book
      activity: {name: work, input: book}
      compensate: {activity: {name: work, input: undo}}
    - name: race
      parallel: {branches: [{name: a, block: fast}, {name: b, block: slow}], wait: Any}
    - {name: risky, activity: {name: work, input: risky}, catch: [{call: {block: mend}}]}
    - {name: end, fail: {type: Enough}}
    """
    played = play(spec, "activities: {work: [{whenInput: risky, fail: {}}, {}]}")
    assert (played.phase, played.elapsed) == ("Failed", 1)
    assert played.steps() == {
        "book": "Succeeded",
        "book:compensate": "Succeeded",
        "race": "Succeeded",
        "race.a": "Succeeded",
        "race.a/nap": "Succeeded",
        "race.b": "Cancelled",
        "race.b/nap": "Cancelled",
        "risky": "Succeeded",
        "risky:catch": "Succeeded",
        "risky:catch/work": "Succeeded",
        "end": "Failed",
    }


HANDLERS = """
activities: [{name: work, startToCloseTimeout: 1m, container: {image: i}}]
blocks:
- name: tidy
  steps:
  - {name: inner, call: {block: one}}
  - {name: both, parallel: {branches: [{name: a, block: one}, {name: b, block: one}]}}
- {name: one, steps: [{name: work, activity: {name: work}}]}
steps: [{name: end, return: {output: 1}}]
finally: {block: tidy, timeout: 10s}
"""


def test_a_handler_ends_with_its_last_step() -> None:
    played = play(HANDLERS, "activities: {work: [{after: 3s}]}")
    assert (played.phase, played.elapsed) == ("Completed", 6)
    assert played.steps()[":finally/both"] == "Succeeded"


def test_a_handler_that_times_out_is_stopped_with_all_its_blocks() -> None:
    played = play(HANDLERS, "activities: {work: [{after: 3s}, {hang: true}]}")
    assert (played.phase, played.elapsed) == ("Failed", 10)
    assert "`finally` has taken longer than" in played.json["failure"]["message"]


def test_a_branch_of_an_item_can_fail() -> None:
    spec = """
    blocks: [{name: one, steps: [{name: stop, fail: {type: Enough}}]}]
    steps: [{name: each, forEach: {items: [1]}, parallel: {branches: [{name: a, block: one}]}}]
    """
    played = play(spec)
    assert (played.phase, played.json["failure"]["type"]) == ("Failed", "Enough")


ENDLESS = """
activities:
- {name: work, startToCloseTimeout: 1m, container: {image: i}}
steps:
- {name: work, activity: {name: work}}
- {name: again, continueAsNew: {}}
"""


def test_an_endless_loop_is_an_error_with_a_remedy() -> None:
    with pytest.raises(EndlessError, match=r"after 500 events and attempts: it has continued as \d+ runs"):
        play(ENDLESS, "maxEvents: 500")
    with pytest.raises(
        EndlessError, match=r"activity `work` had .* attempts, so let one succeed or set `maximumAttempts`"
    ):
        play(ENDLESS, "{maxEvents: 500, activities: {work: [{fail: {}}]}}")
    with pytest.raises(EndlessError, match="beyond 100 years"):
        play("steps: [{name: nap, sleep: {duration: 40000d}}]")


def test_endless_loops_of_other_runs_are_ignored_after_the_run_has_closed() -> None:
    loop = "{workflow: {name: loop}, cancellationType: Abandon, parentClosePolicy: Abandon}"
    parent = f"steps: [{{name: c, timeout: 1s, childWorkflow: {loop}}}]"
    played = play(parent, "{maxEvents: 200, activities: {work: [{after: 1s}]}}", workflow(ENDLESS, "loop"))
    assert (played.phase, played.elapsed) == ("Failed", 1)


def test_a_simulation_is_deterministic() -> None:
    scenario = "{activities: {print: [{fail: {}}, {after: 5s}]}, cancelAt: 20s}"
    first, second = (play(PARENT % "Terminate", scenario, workflow(INVOICE, "invoice")).json for _ in range(2))
    assert first == second


def test_the_scenario_sets_the_start_time() -> None:
    spec = "{steps: [{name: nap, sleep: {until: '2030-01-01T00:00:00Z'}}], output: '${run.startTime}'}"
    played = play(spec, "startTime: '2029-12-31T00:00:00Z'")
    assert (played.elapsed, played.json["output"]) == (86400, "2029-12-31T00:00:00Z")


def test_a_workflow_can_be_its_own_child_many_levels_deep() -> None:
    done = play(
        """
        steps:
        - {name: again, when: "${input > 0}", childWorkflow: {workflow: {name: main}, input: "${input - 1}"}}
        - {name: depth, return: {output: "${input == 0 ? 0 : steps.again.output + 1}"}}
        """,
        "input: 20",
    )
    assert (done.phase, done.json["output"]) == ("Completed", 20)
    ids = [child["workflowId"] for child in done.json["children"]]
    assert len(set(ids)) == 20
    assert max(map(len, ids)) <= 1_000


def test_a_deeply_nested_failure_has_a_bounded_size_at_each_level() -> None:
    spec = """
    activities:
    - {name: work, startToCloseTimeout: 1m, container: {image: i}, retryPolicy: {exponential: {maximumAttempts: 1}}}
    steps:
    - {name: again, when: "${input > 0}", childWorkflow: {workflow: {name: main}, input: "${input - 1}"}}
    - {name: work, when: "${input == 0}", activity: {name: work}}
    """
    fail = {"type": "KeyError", "message": "m" * 2_000, "details": "d" * 4_000}
    played = play(spec, json.dumps({"input": 20, "activities": {"work": [{"fail": fail}]}}))
    assert played.phase == "Failed"
    for execution in played.report.transcript.executions:
        (run,) = execution.runs
        failure = run.events[-1].failure
        assert len(failure.message) <= 4_096
        assert failure.message.startswith("step `again`: child workflow `" if failure.cause.cause else "step `work`: ")
        assert (failure.chain()[-1].type, failure.chain()[-1].details) == ("KeyError", "d" * 4_000)
        assert len(msgspec.json.encode(history.encode(run.events))) < 200_000


def test_the_start_time_of_a_delayed_run_is_its_creation_time() -> None:
    """As on a cluster, where `status.startTime` says the same."""
    manifest = {
        "apiVersion": "perdure.dev/v1alpha1",
        "kind": "WorkflowRun",
        "metadata": {"name": "later"},
        "spec": {"startDelay": "1h", "inline": {"steps": [{"name": "when", "return": {"output": "${run.startTime}"}}]}},
    }
    done = play(manifest)
    assert (done.elapsed, done.json["output"]) == (3600, "2026-01-01T00:00:00Z")


def test_recursive_children_fail_at_the_nesting_limit() -> None:
    recursive = 'steps: [{name: again, childWorkflow: {workflow: {name: main}, input: "${input + 1}"}}]'
    played = play(recursive, "input: 0")
    assert played.phase == "Failed"
    assert "would have 21 ancestors" in json.dumps(played.json)


def test_an_approval_records_its_sender() -> None:
    flow = "steps: [{name: ask, waitForSignal: {name: go, approval: true}}]"
    said = "{at: 5s, name: go, sender: jane, input: {approved: true, comment: fine}}"
    played = play(flow, f"signals: [{said}]")
    assert (played.phase, played.report.output) == ("Completed", {"approved": True, "comment": "fine", "by": "jane"})
    rejected = play(flow, f"signals: [{said.replace('true', 'false')}]")
    assert rejected.phase == "Failed"


def test_hooks_run_around_a_step() -> None:
    flow = """
activities: [{name: work, startToCloseTimeout: 1m, container: {image: i}}]
steps:
- name: do
  onStart: {block: notify, input: started}
  activity: {name: work}
  onEnd: {block: notify, input: "${step.status}"}
blocks: [{name: notify, steps: [{name: note, set: {notes: "${vars.?notes.orValue([]) + [params]}"}}]}]
output: "${vars.notes}"
"""
    assert play(flow, "activities: {work: [{after: 1s}]}").report.output == ["started", "Succeeded"]
