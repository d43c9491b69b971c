"""Containers and scripts of Argo as activities: expressions, outputs, retries, and pods."""

from pathlib import Path
from typing import Any

import pytest

from unit.importing.imported import argo, workflow


def one(folder: Path, template: str, spec: str = "entrypoint: main") -> dict[str, Any]:
    """The only activity of a complete import."""
    made = argo(folder, workflow(template, spec))
    assert made.complete, made.sentences
    (activity,) = made.spec["activities"]
    return dict(activity)


def test_words_after_the_first_expression_are_arguments(tmp_path: Path) -> None:
    made = one(
        tmp_path,
        '- {name: main, container: {image: "a:{{workflow.parameters.v}}", command: [echo, "{{workflow.parameters.v}}", x]}}',
        "entrypoint: main\narguments: {parameters: [{name: v, value: 1}]}",
    )
    assert made["container"]["image"] == "a:${input.v}"
    assert (made["container"]["command"], made["container"]["args"]) == (["echo"], ["${input.v}", "x"])


def test_a_literal_of_a_shell_is_no_expression(tmp_path: Path) -> None:
    made = one(tmp_path, '- {name: main, container: {image: a, command: [sh, -c], args: ["echo ${HOME}"]}}')
    assert made["container"]["args"] == ["echo $${HOME}"]


def test_a_script_is_a_program_that_kubernetes_does_not_expand(tmp_path: Path) -> None:
    made = one(
        tmp_path, '- {name: main, script: {image: a, command: [bash, -e], source: "echo $(date) {{workflow.name}}"}}'
    )
    assert made["container"]["command"] == ["bash", "-e"]
    assert made["container"]["args"] == ["-c", "echo $$(date) ${run.name}"]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("limit: 3", {"initialInterval": "1s", "backoffCoefficient": "1.0", "maximumAttempts": 4}),
        (
            "limit: '2', retryPolicy: Always",
            {"initialInterval": "1s", "backoffCoefficient": "1.0", "maximumAttempts": 3},
        ),
        (
            "retryPolicy: OnError, limit: 5",
            {"initialInterval": "1s", "backoffCoefficient": "1.0", "maximumAttempts": 1},
        ),
        (
            "limit: 1, backoff: {duration: 10, factor: 2, cap: 1m}",
            {"initialInterval": "10s", "backoffCoefficient": "2", "maximumInterval": "1m", "maximumAttempts": 2},
        ),
    ],
)
def test_retries_become_a_policy(tmp_path: Path, strategy: str, expected: dict[str, Any]) -> None:
    made = one(tmp_path, f"- {{name: main, retryStrategy: {{{strategy}}}, container: {{image: a, command: [x]}}}}")
    assert made["retryPolicy"]["exponential"] == expected


def test_without_a_retry_strategy_there_is_one_attempt(tmp_path: Path) -> None:
    made = one(tmp_path, "- {name: main, container: {image: a}}")
    assert made["retryPolicy"] == {"exponential": {"maximumAttempts": 1}}


def test_a_condition_on_exit_codes_names_those_that_are_not_retried(tmp_path: Path) -> None:
    made = one(
        tmp_path,
        """- name: main
  retryStrategy: {limit: 3, expression: "asInt(lastRetry.exitCode) != 2 && lastRetry.status != 'Error'"}
  container: {image: a}""",
    )
    assert made["failureTypes"] == [{"exitCodes": [2], "type": "NotRetried", "nonRetryable": True}]


def test_the_longest_backoff_limits_all_attempts(tmp_path: Path) -> None:
    made = one(
        tmp_path,
        "- {name: main, retryStrategy: {limit: 9, backoff: {duration: 1s, maxDuration: 5m}}, container: {image: a}}",
    )
    assert made["scheduleToCloseTimeout"] == "5m"


@pytest.mark.parametrize(
    ("deadline", "expected"), [("activeDeadlineSeconds: 30", "30s"), ("timeout: 2m", "2m"), ("daemon: false", "1d")]
)
def test_a_deadline_limits_an_attempt(tmp_path: Path, deadline: str, expected: str) -> None:
    made = one(tmp_path, f"- {{name: main, {deadline}, container: {{image: a}}}}")
    assert made["startToCloseTimeout"] == expected


def test_fields_of_pods_make_a_pod_template(tmp_path: Path) -> None:
    made = one(
        tmp_path,
        """- name: main
  metadata: {labels: {app: x}}
  nodeSelector: {disk: ssd}
  initContainers: [{name: first, image: b}]
  sidecars: [{name: beside, image: c}]
  volumes: [{name: own, emptyDir: {}}]
  container: {image: a, volumeMounts: [{name: own, mountPath: /own}, {name: shared, mountPath: /shared}]}""",
        """entrypoint: main
serviceAccountName: worker
volumes: [{name: shared, configMap: {name: x}}, {name: unused, emptyDir: {}}]
podSpecPatch: '{"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]}'""",
    )
    template = made["podTemplate"]
    assert template["metadata"] == {"labels": {"app": "x"}}
    spec = template["spec"]
    assert (spec["serviceAccountName"], spec["nodeSelector"]) == ("worker", {"disk": "ssd"})
    assert [volume["name"] for volume in spec["volumes"]] == ["own", "shared"]
    assert [(each["name"], each.get("restartPolicy")) for each in spec["initContainers"]] == [
        ("beside", "Always"),
        ("first", None),
    ]
    assert spec["containers"][0]["resources"] == {"limits": {"cpu": "1"}}
    assert spec["securityContext"] == {"runAsNonRoot": False}


@pytest.mark.parametrize(
    ("template", "path"),
    [
        ("- {name: main, http: {url: x}}", "spec.templates[0].http"),
        ("- {name: main, memoize: {key: x}, container: {image: a}}", "spec.templates[0].memoize"),
        ("- {name: main, inputs: {artifacts: [{name: a, path: /a}]}, container: {image: a}}", "inputs.artifacts[0]"),
        ("- {name: main, container: {image: a, workingDir: '{{workflow.parameters.x}}'}}", "container.workingDir"),
        ("- {name: main, script: {image: a, command: [pwsh], source: x}}", "script.command"),
        ("- {name: main, container: {image: a, args: ['{{pod.name}}']}}", "container.args[0]"),
        ("- {name: main, unheard: {of: x}, container: {image: a}}", "spec.templates[0].unheard"),
        ("- {name: main, steps: [[{name: a, template: missing}]]}", "spec.templates[0].steps[0][0].template"),
        ("- {name: main, steps: [[{name: a, templateRef: {name: far, template: b}}]]}", "steps[0][0].templateRef"),
    ],
)
def test_what_has_no_counterpart_is_reported_by_its_path(tmp_path: Path, template: str, path: str) -> None:
    made = argo(tmp_path, workflow(template))
    assert not made.complete
    assert [each for each in made.sentences if each.startswith("Not imported: Workflow/made: ") and path in each]
    assert not [each for each in made.sentences if each.startswith("Invalid")]


def test_a_step_that_is_not_imported_fails_the_run(tmp_path: Path) -> None:
    made = argo(
        tmp_path, workflow("- {name: main, steps: [[{name: call, template: web}]]}\n- {name: web, plugin: {x: {}}}")
    )
    report = made.simulate()
    assert (report["phase"], report["failure"]["type"]) == ("Failed", "NotImported")
