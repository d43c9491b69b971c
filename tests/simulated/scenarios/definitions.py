"""The Workflows that the scenarios run."""

from typing import Any

from perdure.simulation.cluster.store import Object


def activity(name: str, **more: Any) -> Object:
    container = {"image": "image", "command": ["work"]}
    return {"name": name, "startToCloseTimeout": "5m", "container": container, **more}


def step(name: str, activity: str, **more: Any) -> Object:
    return {"name": name, "activity": {"name": activity, **more}}


FLOW = {
    "activities": [
        activity("flaky", retryPolicy={"exponential": {"initialInterval": "1s", "maximumInterval": "5s"}}),
        activity("steady"),
        activity("beating", heartbeatTimeout="15s"),
    ],
    "steps": [
        step("one", "flaky", input={"n": 1}),
        {"name": "nap", "sleep": {"duration": "7s"}},
        {
            "name": "fan",
            "forEach": {"items": "${[1, 2, 3, 4]}", "maxConcurrency": 2, "as": "x"},
            "activity": {"name": "steady", "input": "${x}"},
        },
        {"name": "wait", "waitForSignal": {"name": "go", "timeout": "15m"}},
        step("beat", "beating"),
        step("last", "flaky"),
    ],
    "output": "${steps.wait.output}",
}
CHILD = {
    "activities": [activity("steady")],
    "steps": [step("work", "steady")],
    "output": "${'done'}",
}
LOOP = {
    "activities": [activity("steady")],
    "steps": [
        step("work", "steady"),
        {"name": "again", "when": "${input.n > 0}", "continueAsNew": {"input": {"n": "${input.n - 1}"}}},
    ],
    "output": "${input.n}",
}
SLOW = {
    "activities": [activity("steady")],
    "steps": [{"name": "nap", "sleep": {"duration": "100s"}}, step("work", "steady")],
}
PARENT = {
    "activities": [activity("flaky", retryPolicy={"exponential": {"maximumAttempts": 8}}), activity("steady")],
    "steps": [
        {"name": "first", "childWorkflow": {"workflow": {"name": "child"}, "input": {}}},
        step("work", "flaky"),
        {"name": "second", "childWorkflow": {"workflow": {"name": "child"}, "input": {}}},
    ],
    "output": "${steps.first.output + steps.second.output}",
}
DEEP = {
    "activities": [activity("flaky", retryPolicy={"exponential": {"initialInterval": "1s", "maximumInterval": "5s"}})],
    "steps": [
        step("work", "flaky"),
        {
            "name": "deeper",
            "when": "${input.n > 0}",
            "childWorkflow": {"workflow": {"name": "deep"}, "input": {"n": "${input.n - 1}"}},
        },
    ],
}
MANY = {
    "steps": [
        {
            "name": "many",
            "forEach": {"items": "${[1, 2, 3, 4, 5, 6, 7, 8]}", "maxConcurrency": 4, "as": "x"},
            "childWorkflow": {"workflow": {"name": "child"}, "input": {}},
        }
    ],
}
DOOMED = {
    "activities": [activity("doomed", retryPolicy={"exponential": {"maximumAttempts": 1}})],
    "steps": [{**step("work", "doomed"), "deadLetter": True}],
}
SAGA = {
    "activities": [
        activity("do"),
        activity("undo"),
        activity("doomed", retryPolicy={"exponential": {"initialInterval": "1s", "maximumAttempts": 2}}),
    ],
    "steps": [
        {**step("one", "do"), "compensate": {"activity": {"name": "undo", "input": "one"}}},
        {
            "name": "all",
            "forEach": {"items": "${[1, 2, 3, 4]}", "as": "x"},
            "activity": {"name": "do", "input": "${x}"},
            "compensate": {"activity": {"name": "undo", "input": "${x}"}},
        },
        step("last", "doomed"),
    ],
}


def parent_of(workflow: Object, input_: Object, policy: str) -> Object:
    child = {"workflow": workflow, "input": input_, "parentClosePolicy": policy}
    return {"steps": [{"name": "child", "childWorkflow": child}]}
