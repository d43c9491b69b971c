"""The API server warns about expressions that are not evaluated, and admits the objects."""

import json
from typing import Any

import pytest

from perdure.api.labels import API_VERSION
from support.cluster.namespace import Cluster

pytestmark = pytest.mark.cluster

NAP = {"steps": [{"name": "nap", "sleep": {"duration": "1s"}}]}
CODE = {"type": "Order", "taskQueue": "orders"}
DEEP = {"items": [{"texts": ["a", "b of ${steps.a.output}"]}]}
RUN = "WorkflowRun"
STEP, IN_CODE = "write the expression in a step", "compute the value in the code"


def scheduled(spec: Any, **metadata: Any) -> dict[str, Any]:
    return {"cron": ["@daily"], "paused": True, "workflowRunTemplate": {"metadata": metadata, "spec": spec}}


@pytest.mark.parametrize(
    ("kind", "spec", "annotations", "want"),
    [
        (RUN, {"inline": NAP, "input": {"day": "${now}"}}, {}, [f"spec.input: `${{…}}` is not evaluated here: {STEP}"]),
        (RUN, {"inline": NAP, "input": DEEP}, {}, ["spec.input: "]),
        (
            RUN,
            {"inline": NAP, "input": "${input}", "workflowId": "o-${run.name}"},
            {},
            ["spec.input: ", "spec.workflowId: "],
        ),
        (RUN, {"workflow": CODE, "input": "${input}"}, {}, [f"spec.input: `${{…}}` is not evaluated here: {IN_CODE}"]),
        (RUN, {"inline": NAP, "searchAttributes": {"Day": ["${now}"]}}, {}, ["spec.searchAttributes: "]),
        (RUN, {"inline": NAP}, {"note": "of ${run.name}"}, ["metadata.annotations: "]),
        (RUN, {"inline": NAP, "input": {"a": "${HOME} $${run.name} ${1}", "b": 7, "c": None}}, {"note": "${HOME}"}, []),
        (RUN, {"inline": NAP}, {}, []),
        ("Workflow", {**NAP, "input": {"default": {"day": "${now}"}}}, {}, ["spec.input.default: "]),
        ("Workflow", {**NAP, "output": "${run.name}"}, {}, []),
        ("Schedule", scheduled({"inline": NAP, "input": {"day": "${schedule.localDate}"}}), {}, []),
        ("Schedule", scheduled({"workflow": CODE, "input": "${now}"}), {}, ["spec.workflowRunTemplate.spec.input: "]),
        (
            "Schedule",
            scheduled({"inline": NAP, "workflowId": "${now}"}, annotations={"day": "${now}"}),
            {},
            ["spec.workflowRunTemplate.spec.workflowId: ", "spec.workflowRunTemplate.metadata.annotations: "],
        ),
    ],
)
def test_kubectl_shows_a_warning_for_each_place(
    namespace: Cluster, kind: str, spec: Any, annotations: dict[str, str], want: list[str]
) -> None:
    manifest = {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": "one", "annotations": annotations},
        "spec": spec,
    }
    done = namespace.run("create", "-f", "-", stdin=json.dumps(manifest))
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if line.startswith("Warning: ")]
    assert len(warnings) == len(want), done.stderr
    for part in want:
        place, _, fix = part.partition("here: ")
        assert any(f": {place}" in line and line.endswith(fix) for line in warnings), done.stderr
