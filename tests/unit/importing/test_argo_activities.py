"""Containers and scripts of Argo as activities: expressions, outputs, retries, and pods."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from perdure.importing.programs import MISSING_CODE
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


def test_a_shell_variable_is_not_an_expression(tmp_path: Path) -> None:
    made = one(tmp_path, '- {name: main, container: {image: a, command: [sh, -c], args: ["echo ${HOME}"]}}')
    assert made["container"]["args"] == ["echo $${HOME}"]


def test_a_script_template_becomes_a_script(tmp_path: Path) -> None:
    made = one(
        tmp_path,
        '- {name: main, script: {image: a, command: [bash, -e], source: "echo $(date) ${X} {{workflow.name}}"}}',
    )
    assert made["script"] == {
        "image": "a",
        "command": ["bash", "-e"],
        "source": "echo $(date) $${X} ${run.name}",
        "securityContext": {"runAsNonRoot": False},
    }


def test_a_shell_gets_the_script_as_a_file_without_an_option(tmp_path: Path) -> None:
    made = one(tmp_path, '- {name: main, script: {image: a, command: [sh, -c], source: "date"}}')
    assert made["script"]["command"] == ["sh"]


def test_variables_in_a_script_of_a_pod_are_escaped(tmp_path: Path) -> None:
    made = one(
        tmp_path,
        """- name: main
  nodeSelector: {disk: ssd}
  script: {image: a, command: [bash, -e], source: "echo $(date) {{workflow.name}}"}""",
    )
    container = made["podTemplate"]["spec"]["containers"][0]
    assert (container["command"], container["args"]) == (["bash", "-e"], ["-c", "echo $$(date) ${run.name}"])


def test_a_memoized_template_becomes_an_activity_with_a_cache(tmp_path: Path) -> None:
    templates = """- name: main
  memoize: {key: "v-{{workflow.parameters.v}}", maxAge: 90, cache: {configMap: {name: c}}}
  container: {image: a}"""
    made = one(tmp_path, templates, "entrypoint: main\narguments: {parameters: [{name: v, value: 1}]}")
    assert made["cache"] == {"key": "v-${input.v}", "maxAge": "1m30s"}


def test_a_memoized_template_without_an_age_is_cached_for_a_month(tmp_path: Path) -> None:
    made = argo(tmp_path, workflow("- {name: main, memoize: {key: x}, container: {image: a}}"))
    assert made.complete
    assert made.spec["activities"][0]["cache"] == {"key": "x", "maxAge": "30d"}
    assert any("memoize.maxAge: a result is used for at most 30d" in each for each in made.sentences)


def test_an_http_template_becomes_a_request(tmp_path: Path) -> None:
    made = one(
        tmp_path,
        """- name: main
  http:
    url: https://example.com/{{workflow.parameters.path}}
    method: POST
    timeoutSeconds: 20
    headers: [{name: token, valueFrom: {secretKeyRef: {name: s, key: k}}}, {name: from, value: "{{workflow.name}}"}]
    body: hello
    successCondition: "response.statusCode == 201 && response.body contains 'ok'\"""",
        "entrypoint: main\narguments: {parameters: [{name: path, value: x}]}",
    )
    assert made["http"] == {
        "method": "POST",
        "url": "https://example.com/${input.path}",
        "headers": [
            {"name": "token", "secret": {"name": "s", "key": "k"}},
            {"name": "from", "value": "${run.name}"},
        ],
        "body": "hello",
        "timeout": "20s",
        "successCondition": "${(response.status in ['201', 201]) && string(response.body).contains('ok')}",
    }


def test_a_resource_template_becomes_a_resource(tmp_path: Path) -> None:
    made = one(
        tmp_path,
        """- name: main
  inputs: {parameters: [{name: count, value: 3}]}
  resource:
    action: create
    setOwnerReference: true
    successCondition: status.succeeded > 0, status.phase in (Done, Ended)
    failureCondition: status.failed > 3
    manifest: |
      apiVersion: batch/v1
      kind: Job
      metadata: {generateName: "{{workflow.name}}-"}
      spec:
        completions: {{inputs.parameters.count}}
  outputs: {parameters: [{name: job, valueFrom: {jsonPath: "{.metadata.name}"}}]}""",
        "entrypoint: main\nserviceAccountName: jobs",
    )
    number = "${type(input.count) == string && input.count.matches('^-?[0-9]+$') ? int(input.count) : input.count}"
    assert made["resource"] == {
        "action": "Create",
        "serviceAccountName": "jobs",
        "manifest": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"generateName": "${run.name}-"},
            "spec": {"completions": number},
        },
        "owned": True,
        "successCondition": "${object.status.succeeded > 0 && (object.status.phase in ['Done', 'Ended'])}",
        "failureCondition": "${object.status.failed > 3}",
        "output": "${object.metadata.name}",
    }


def test_braces_of_other_programs_are_kept_in_an_object(tmp_path: Path) -> None:
    made = one(
        tmp_path,
        """- name: main
  resource:
    action: create
    manifest: |
      apiVersion: monitoring.coreos.com/v1
      kind: PrometheusRule
      metadata: {name: "{{workflow.name}}"}
      spec: {summary: "{{ $labels.pod }} is down"}""",
    )
    assert made["resource"]["manifest"]["spec"] == {"summary": "{{ $labels.pod }} is down"}
    assert made["resource"]["manifest"]["metadata"] == {"name": "${run.name}"}


def test_containers_of_a_set_run_in_order(tmp_path: Path) -> None:
    made = one(
        tmp_path,
        """- name: main
  volumes: [{name: x, emptyDir: {}}]
  containerSet:
    volumeMounts: [{name: x, mountPath: /x}]
    containers:
    - {name: main, image: m, command: [m], dependencies: [b]}
    - {name: b, image: b, command: [b], dependencies: [a]}
    - {name: a, image: a, command: [a]}""",
    )
    spec = made["podTemplate"]["spec"]
    assert [each["name"] for each in spec["initContainers"]] == ["a", "b"]
    assert spec["containers"] == [
        {"name": "main", "image": "m", "command": ["m"], "volumeMounts": [{"name": "x", "mountPath": "/x"}]}
    ]


SET = """- name: main
  containerSet:
    containers:
    - {name: a, image: a, command: [a]}
    - {name: b, image: b, command: [b], dependencies: [a]}
    - {name: main, image: m, command: [m], dependencies: [a]%s}"""


def test_containers_of_a_set_wait_for_their_dependencies(tmp_path: Path) -> None:
    made = argo(tmp_path, workflow(SET % ", volumeMounts: [{name: x, mountPath: /x}]", "entrypoint: main"))
    assert made.complete, made.sentences
    spec = made.activity("main")["podTemplate"]["spec"]
    assert spec["containers"] == [
        {
            "name": "main",
            "needs": ["a"],
            "image": "m",
            "command": ["m"],
            "volumeMounts": [{"name": "x", "mountPath": "/x"}],
        },
        {"name": "a", "needs": [], "image": "a", "command": ["a"]},
        {"name": "b", "needs": ["a"], "image": "b", "command": ["b"]},
    ]
    assert "initContainers" not in spec
    report = made.simulate({"main": [{"output": "done"}]})
    assert report["phase"] == "Completed"


def test_the_main_container_of_a_set_returns_the_outputs_even_if_it_is_not_the_last(tmp_path: Path) -> None:
    text = """- name: main
  containerSet:
    containers:
    - {name: main, image: m, command: [m]}
    - {name: b, image: b, command: [b], dependencies: [main]}
    - {name: c, image: c, command: [c], dependencies: [main]}
  outputs: {parameters: [{name: x, valueFrom: {path: /x}}]}"""
    made = argo(tmp_path, workflow(text, "entrypoint: main"))
    assert made.complete, made.sentences
    main, *others = made.activity("main")["podTemplate"]["spec"]["containers"]
    assert (main["name"], main["command"]) == ("main", ["sh", "-c"])
    assert [each["needs"] for each in others] == [["main"], ["main"]]


def test_containers_of_a_set_without_dependencies_need_no_command(tmp_path: Path) -> None:
    text = "- name: main\n  containerSet: {containers: [{name: a, image: a}, {name: b, image: b}]}"
    made = argo(tmp_path, workflow(text, "entrypoint: main"))
    assert made.complete, made.sentences
    spec = made.activity("main")["podTemplate"]["spec"]
    assert spec["containers"] == [{"name": "b", "needs": [], "image": "b"}, {"name": "a", "needs": [], "image": "a"}]


def test_parallel_containers_whose_command_is_not_known_run_one_after_the_other(tmp_path: Path) -> None:
    made = argo(tmp_path, workflow(SET.replace(", command: [b]", "") % "", "entrypoint: main"))
    assert made.complete, made.sentences
    assert any("set the `command` of `b`" in sentence for sentence in made.sentences)
    spec = made.activity("main")["podTemplate"]["spec"]
    assert [each["name"] for each in spec["initContainers"]] == ["a", "b"]


def test_claims_become_workspaces(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """- name: main
  initContainers: [{name: first, image: b, volumeMounts: [{name: work, mountPath: /w}]}]
  container: {image: a, volumeMounts: [{name: work, mountPath: /work, subPath: p}]}""",
            """entrypoint: main
volumeClaimTemplates:
- metadata: {name: work}
  spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}""",
        ),
    )
    assert made.complete, made.sentences
    assert [each["name"] for each in made.spec["workspaces"]] == ["work"]
    activity = made.activity("main")
    assert activity["workspaces"] == [{"name": "work", "mountPath": "/work", "subPath": "p"}]
    pod = activity["podTemplate"]["spec"]
    assert pod["initContainers"][0]["volumeMounts"] == [{"name": "workspace-work", "mountPath": "/w"}]
    assert "volumeMounts" not in pod["containers"][0]


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
def test_a_retry_strategy_becomes_a_retry_policy(tmp_path: Path, strategy: str, expected: dict[str, Any]) -> None:
    made = one(tmp_path, f"- {{name: main, retryStrategy: {{{strategy}}}, container: {{image: a, command: [x]}}}}")
    assert made["retryPolicy"]["exponential"] == expected


def test_without_a_retry_strategy_there_is_one_attempt(tmp_path: Path) -> None:
    made = one(tmp_path, "- {name: main, container: {image: a}}")
    assert made["retryPolicy"] == {"exponential": {"maximumAttempts": 1}}


def test_a_condition_on_exit_codes_becomes_non_retryable_failure_types(tmp_path: Path) -> None:
    made = one(
        tmp_path,
        """- name: main
  retryStrategy: {limit: 3, expression: "asInt(lastRetry.exitCode) != 2 && lastRetry.status != 'Error'"}
  container: {image: a}""",
    )
    assert made["failureTypes"] == [{"exitCodes": [2], "type": "NotRetried"}]


@pytest.mark.parametrize(
    ("code", "began", "ends"),
    [(1, 0, 1), (1, 59, 1), (1, 61, 251), (7, 61, 7), (3, 61, 251), (2, 0, 2)],
    ids=["fast", "just in time", "slow", "slow, but always retried", "slow, another code", "never retried"],
)
def test_a_condition_on_the_duration_is_judged_by_a_shell(tmp_path: Path, code: int, began: int, ends: int) -> None:
    """`lastRetry.duration`: argo-workflows docs/retries.md, "Conditional retries"."""
    condition = "asInt(lastRetry.duration) < 60 && lastRetry.exitCode != '2' || lastRetry.exitCode == '7'"
    made = one(
        tmp_path,
        f"""- name: main
  retryStrategy: {{limit: 3, expression: "{condition}"}}
  container: {{image: a, command: [sh, -c], args: ["exit {code}"]}}""",
    )
    assert made["failureTypes"] == [{"exitCodes": [2, 251], "type": "NotRetried"}]
    assert made["retryPolicy"]["exponential"]["nonRetryableErrorTypes"] == ["NotRetried"]
    program, *rest = made["container"]["args"]
    started = f"started=$(($(date +%s) - {began}))"
    ran = program.replace("$$(", "$(").replace("started=$(date +%s)", started)
    assert started in ran
    assert subprocess.run(["sh", "-c", ran, *rest], check=False).returncode == ends


def test_a_condition_that_computes_with_the_duration_is_reported(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow("""- name: main
  retryStrategy: {limit: 3, expression: "asInt(lastRetry.duration) * 2 < 60"}
  container: {image: a, command: [x]}"""),
    )
    assert any("it computes with `lastRetry.duration`" in each for each in made.sentences)


def test_the_longest_backoff_limits_all_attempts(tmp_path: Path) -> None:
    made = one(
        tmp_path,
        "- {name: main, retryStrategy: {limit: 9, backoff: {duration: 1s, maxDuration: 5m}}, container: {image: a}}",
    )
    assert (made["scheduleToCloseTimeout"], made["startToCloseTimeout"]) == ("5m", "5m")


@pytest.mark.parametrize(
    ("deadline", "expected"), [("activeDeadlineSeconds: 30", "30s"), ("timeout: 2m", "2m"), ("daemon: false", "1d")]
)
def test_a_deadline_limits_an_attempt(tmp_path: Path, deadline: str, expected: str) -> None:
    made = one(tmp_path, f"- {{name: main, {deadline}, container: {{image: a}}}}")
    assert made["startToCloseTimeout"] == expected


def test_pod_fields_become_a_pod_template(tmp_path: Path) -> None:
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
        ("- {name: main, data: {}}", "spec.templates[0].data"),
        (
            "- {name: main, http: {url: 'https://x', insecureSkipVerify: true}}",
            "spec.templates[0].http.insecureSkipVerify",
        ),
        (
            "- {name: main, resource: {action: replace, manifest: '{apiVersion: v1, kind: X, metadata: {name: x}}'}}",
            "spec.templates[0].resource.action",
        ),
        ("- {name: main, memoize: {maxAge: 1h}, container: {image: a}}", "spec.templates[0].memoize.key"),
        (
            "- {name: main, memoize: {key: x}, steps: [[{name: a, template: b}]]}\n- {name: b, container: {image: a}}",
            "spec.templates[0].memoize",
        ),
        ("- {name: main, inputs: {artifacts: [{name: a, path: /a}]}, container: {image: a}}", "arguments"),
        (
            "- {name: main, metadata: {labels: {a: '{{workflow.name}}'}}, container: {image: a}}",
            "spec.templates[0].metadata.labels.a",
        ),
        (
            "- {name: main, resource: {action: get, flags: [-o], manifest: '{apiVersion: v1, kind: X, metadata: {name: x}}'}}",
            "spec.templates[0].resource.flags",
        ),
        ("- {name: main, nodeSelector: {a: b}, script: {image: a, command: [pwsh], source: x}}", "script.command"),
        ("- {name: main, resource: {action: patch, manifest: '{spec: {}}'}}", "spec.templates[0].resource.manifest"),
        ("- {name: main, container: {image: 'a:{{pod.name}}'}}", "container.image"),
        (
            '- {name: main, podSpecPatch: \'{"nodeSelector": {"{{workflow.name}}": x}}\', container: {image: a}}',
            "spec.templates[0].podSpecPatch",
        ),
        ("- {name: main, unheard: {of: x}, container: {image: a}}", "spec.templates[0].unheard"),
        ("- {name: main, steps: [[{name: a, template: missing}]]}", "spec.templates[0].steps[0][0].template"),
    ],
)
def test_fields_without_a_counterpart_are_reported_by_path(tmp_path: Path, template: str, path: str) -> None:
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


def test_a_deadline_can_be_an_input(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """- name: main
  inputs: {parameters: [{name: limit, value: "{{workflow.parameters.longest}}"}]}
  steps:
  - - {name: a, template: work, arguments: {parameters: [{name: timeout, value: "5"}]}}
  - - {name: b, template: work, arguments: {parameters: [{name: timeout, value: "{{inputs.parameters.limit}}"}]}}
- {name: work, timeout: "{{inputs.parameters.timeout}}", inputs: {parameters: [{name: timeout}]}, container: {image: a}}""",
            "entrypoint: main\narguments: {parameters: [{name: longest, value: 10s}]}",
        ),
    )
    assert made.complete, made.sentences
    assert made.step("a")["activity"]["startToCloseTimeout"] == "5s"
    assert made.step("b")["activity"]["startToCloseTimeout"] == "${duration(string(params.limit))}"
    report = made.simulate({"work": [{"after": "6s"}, {"hang": True}]})
    assert (report["phase"], report["elapsed"]) == ("Failed", 5)


def test_outputs_of_an_entry_point_are_not_imported(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """- name: main
  container: {image: a, args: [echo, hello, /output]}
  outputs: {parameters: [{name: out, valueFrom: {path: /output}}]}"""
        ),
    )
    (sentence,) = made.sentences
    assert "container.command: must be set, because a shell starts the command; or import it with" in sentence


def test_a_command_that_only_the_image_has_is_its_known_entry_point(tmp_path: Path) -> None:
    outputs = "outputs: {parameters: [{name: out, valueFrom: {path: /tmp/out}}]}"
    for image, fields, line in (
        ("docker.io/library/alpine:3.23", "", ["/bin/sh"]),
        ("busybox", ", args: [date]", ["date"]),
        ("argoproj/argosay:v2", ", args: [echo, hi, /tmp/out]", ["/argosay", "echo", "hi", "/tmp/out"]),
        ("bash@sha256:0123", "", ["docker-entrypoint.sh", "bash"]),
    ):
        made = one(tmp_path, f"- name: main\n  container: {{image: '{image}'{fields}}}\n  {outputs}")
        assert made["container"]["args"][1:] == ["perdure", *line]


def test_the_commands_of_images_are_read_from_the_configmap_of_the_controller(tmp_path: Path) -> None:
    templates = """- name: main
  container: {image: "own:1", args: [x]}
  outputs: {parameters: [{name: a, valueFrom: {path: /tmp/a}}]}"""
    unknown = argo(tmp_path, workflow(templates))
    assert not unknown.complete
    assert any("container.command: must be set" in each for each in unknown.sentences)
    images = """kind: ConfigMap
metadata: {name: workflow-controller-configmap}
data:
  images: |
    own:1: {entrypoint: [/own], cmd: [y]}
"""
    made = argo(tmp_path, workflow(templates), images)
    assert made.complete, made.sentences
    assert made.activity("main")["container"]["args"][1:] == ["perdure", "/own", "x"]


def test_flags_that_name_objects_are_arguments_of_kubectl(tmp_path: Path) -> None:
    made = one(
        tmp_path,
        """- name: main
  resource: {action: delete, flags: [configmap, --selector, "a={{workflow.parameters.v}}"]}""",
        "entrypoint: main\nserviceAccountName: cleaner\narguments: {parameters: [{name: v, value: 1}]}",
    )
    spec = made["podTemplate"]["spec"]
    assert (spec["serviceAccountName"], spec["automountServiceAccountToken"]) == ("cleaner", True)
    line = ["delete", "--ignore-not-found", "configmap", "--selector", "a=${input.v}", "-o", "name"]
    assert spec["containers"][0]["args"] == line


def test_a_patch_of_the_own_pod_is_made_by_kubectl(tmp_path: Path) -> None:
    made = one(
        tmp_path,
        """- name: main
  resource:
    action: patch
    manifest: |
      apiVersion: v1
      kind: Pod
      metadata: {name: "{{pod.name}}", annotations: {a: $(b)}}""",
    )
    (container,) = made["podTemplate"]["spec"]["containers"]
    assert container["env"] == [{"name": "ARGO_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    assert container["args"][:4] == ["patch", "--type", "strategic", "--patch"]
    assert 'name: "$(ARGO_POD_NAME)", annotations: {a: $$(b)}' in container["args"][4]
    assert container["args"][5:] == ["pod.v1./$(ARGO_POD_NAME)", "-o", "json"]


def test_a_patch_of_the_own_workflow_changes_the_run(tmp_path: Path) -> None:
    made = argo(
        tmp_path,
        workflow(
            """- name: main
  resource:
    action: patch
    mergeStrategy: json
    flags: [workflow, "{{workflow.name}}"]
    manifest: "[{op: add, path: /metadata/labels/a, value: b}]\""""
        ),
    )
    assert made.complete, made.sentences
    (container,) = made.activity("main")["podTemplate"]["spec"]["containers"]
    assert container["args"][5:7] == ["workflowruns.perdure.dev", "${run.name}"]
    assert any("flags: the run is the object" in each for each in made.sentences)


def test_flags_with_a_manifest_are_reported(tmp_path: Path) -> None:
    manifest = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
    made = argo(
        tmp_path,
        workflow(f'- {{name: main, resource: {{action: create, flags: [--dry-run], manifest: "{manifest}"}}}}'),
    )
    assert not made.complete
    assert any("resource.flags: has no counterpart" in each for each in made.sentences)


def test_the_name_of_the_pod_is_a_variable(tmp_path: Path) -> None:
    made = one(
        tmp_path,
        """- name: main
  container: {image: a, command: [echo, "{{pod.name}}"], env: [{name: P, value: "x-{{pod.name}}"}]}""",
    )
    container = made["container"]
    assert [each["name"] for each in container["env"]] == ["ARGO_POD_NAME", "P"]
    assert (container["env"][1]["value"], container["command"]) == ("x-$(ARGO_POD_NAME)", ["echo", "$(ARGO_POD_NAME)"])
    script = argo(tmp_path, workflow('- {name: main, script: {image: a, command: [sh], source: "echo {{pod.name}}"}}'))
    assert any("`pod.name` is only known in" in each for each in script.sentences)


@pytest.mark.parametrize(("default", "fails"), [("", False), ("none", False), (None, True)])
def test_an_output_without_its_file_has_its_default_also_an_empty_one(
    tmp_path: Path, default: str | None, fails: bool
) -> None:
    source = "" if default is None else f", default: '{default}'"
    made = argo(
        tmp_path,
        workflow(
            "- {name: main, container: {image: a, command: [b]}, outputs: {parameters: [{name: o, valueFrom: {path: /o"
            + source
            + "}}]}}"
        ),
    )
    assert made.complete, made.sentences
    assert (f"exit {MISSING_CODE}" in made.activity("main")["container"]["args"][0]) == fails
