"""Expressions in the containers of activities: values, warnings, and errors."""

from typing import Any

import pytest
import yaml

from perdure.api.kinds.workflow import Activity, WorkflowSpec
from perdure.language import containers
from perdure.language.checks import check
from perdure.language.compiler import compile_program
from perdure.language.program import InvalidWorkflowError
from perdure.language.step_failures import StepError

RUN = {"name": "order-1", "namespace": "shop", "workflowId": "order", "runId": "uid"}


def activity(**container: Any) -> Activity:
    return Activity.parse({"name": "a", "startToCloseTimeout": "1m", "container": {"image": "i", **container}})


def resolved(input_: Any, **container: Any) -> dict[str, Any]:
    found = containers.resolve(activity(**container), input=input_, run=RUN, attempt=2).container
    assert found is not None
    return found.dump()


def findings_of(text: str) -> list[str]:
    spec = yaml.safe_load("startToCloseTimeout: 1m\nname: work\n" + text)
    steps = [{"name": "do", "activity": {"name": "work"}}]
    found = check(WorkflowSpec.parse({"activities": [spec], "steps": steps})).findings
    return [f"{finding.severity.value} {finding}" for finding in found]


def test_args_env_and_image_are_evaluated() -> None:
    input_ = {"amount": 3, "tag": "1.2", "list": [1, {"b": None, "a": "ä"}], "text": "x y"}
    found = resolved(
        input_,
        image="shop/charge:${input.tag}",
        command=["run", "${input.amount}"],
        args=["--amount=${input.amount}", "${input.list}", "${input.text}", "${run.workflowId}/${attempt}", "$${HOME}"],
        env=[
            {"name": "A", "value": "${input.list}"},
            {"name": "B", "value": "$(A) and ${input.amount > 2}"},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        workingDir="/${input.tag}",
    )
    assert found["image"] == "shop/charge:1.2"
    assert found["args"] == ["--amount=3", '[1,{"a":"ä","b":null}]', "x y", "order/2", "${HOME}"]
    assert [variable.get("value") for variable in found["env"]] == ['[1,{"a":"ä","b":null}]', "$(A) and true", None]
    assert found["command"] == ["run", "${input.amount}"]
    assert found["workingDir"] == "/${input.tag}"


def test_values_are_not_expanded_by_kubernetes() -> None:
    input_ = "$(PASSWORD) $ $$ a$"
    found = resolved(
        input_, image="${input}", args=["${input}(HOME)", "$$(x)"], env=[{"name": "A", "value": "${input}"}]
    )
    assert found["args"] == ["$$(PASSWORD) $$ $$$$ a$$(HOME)", "$$(x)"]
    assert found["env"][0]["value"] == "$$(PASSWORD) $$ $$$$ a$$"
    assert found["image"] == input_  # nothing in it is expanded


def test_a_definition_without_expressions_is_unchanged() -> None:
    definition = activity(args=["a $b"], env=[{"name": "A", "value": "1"}], resources={"limits": {"cpu": 1}})
    assert containers.resolve(definition, input=1, run=RUN, attempt=1).dump() == definition.dump()


def test_all_containers_of_a_pod_template_are_evaluated() -> None:
    spec = {
        "containers": [{"name": "m", "image": "i", "args": ["${input}"]}, {"name": "s", "image": "s:${input}"}],
        "initContainers": [{"name": "p", "image": "i", "env": [{"name": "A", "value": "${attempt}"}]}],
        "volumes": [{"name": "${input}"}],
    }
    definition = Activity.parse({"name": "a", "startToCloseTimeout": "1m", "podTemplate": {"spec": spec}})
    found = containers.resolve(definition, input="v", run=RUN, attempt=1).pod_template
    assert found is not None
    made = found.spec.dump()
    assert made["containers"][0]["args"] == ["v"]
    assert made["containers"][1]["image"] == "s:v"
    assert made["initContainers"][0]["env"][0]["value"] == "1"
    assert made["volumes"] == [{"name": "${input}"}]
    assert definition.dump()["podTemplate"]["spec"]["containers"] == spec["containers"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("${input.x}", "container.args[0]: "), ("${'a' + input}", "container.args[0]: ")],
)
def test_an_expression_without_a_value_fails_the_activity(text: str, message: str) -> None:
    with pytest.raises(StepError) as caught:
        resolved({"y": 1}, args=[text])
    assert caught.value.failure.type == "ExpressionError"
    assert caught.value.failure.non_retryable
    assert caught.value.failure.message.startswith(f"activity `a`: {message}${{")


def test_a_run_of_an_older_version_keeps_its_literal_texts() -> None:
    text = "echo ${HOME} ${1:-x} ${"
    assert resolved(1, args=[text])["args"] == [text]
    spec = {"activities": [activity(args=[text]).dump()], "steps": [{"name": "s", "activity": {"name": "a"}}]}
    assert compile_program(WorkflowSpec.parse(spec)).activities["a"].container is not None


def test_a_trial_has_placeholders_for_expressions() -> None:
    definition = activity(image="host/app:${input.tag}", args=["${input}", "a ${run.name} $${b}"])
    found = containers.with_placeholders(definition).container
    assert found is not None
    assert (found.image, found.dump()["args"]) == ("host/app:x", ["x", "a x ${b}"])
    assert containers.has_computed_image(definition)
    assert not containers.has_computed_image(activity(args=["${input}"]))


@pytest.mark.parametrize(
    ("container", "place", "message"),
    [
        ('args: ["${inptu.x}"]', "args[0]", "unknown name `inptu`, did you mean `input`"),
        (
            'args: ["${steps.a.output}"]',
            "args[0]",
            "`input` (the input of the activity), `run`, and `attempt`; pass what",
        ),
        ('args: ["echo ${HOME}"]', "args[0]", "for a shell variable, write `$HOME` or `$${HOME}`"),
        ('args: ["echo ${1:-x}"]', "args[0]", "for a literal `${`, such as in a shell, write `$${`"),
        ('env: [{name: A, value: "${run.nme}"}]', "env[0].value", "there is no field `nme` in `run`"),
        ('env: [{name: A, value: "${1 / 0}"}]', "env[0].value", "always fails"),
    ],
)
def test_an_expression_that_cannot_be_evaluated_is_an_error_before_the_run(
    container: str, place: str, message: str
) -> None:
    (finding,) = findings_of(f"container: {{image: i, {container}}}")
    assert finding.startswith(f"Error spec.activities[0].container.{place}: ")
    assert message in finding


@pytest.mark.parametrize(
    ("pod", "place", "hint"),
    [
        (
            "container: {image: i, imagePulPolicy: Always}",
            "container.imagePulPolicy",
            "did you mean `imagePullPolicy`?",
        ),
        (
            "container: {image: i, ports: [{containerPort: 1, prot: TCP}]}",
            "container.ports[0].prot",
            "did you mean `protocol`?",
        ),
        ("container: {image: i, livenessProbe: {http: {}}}", "container.livenessProbe.http", "did you mean `httpGet`?"),
        ("script: {image: i, source: x, xyzzy: 1}", "script.xyzzy", "remove it"),
        (
            "podTemplate: {spec: {nodeSelektor: {}, containers: [{image: i, name: a, needs: []}]}}",
            "podTemplate.spec.nodeSelektor",
            "did you mean `nodeSelector`?",
        ),
        (
            "container: {image: i}\npodSpecPatch: {$patch: merge, containers: [{name: a, envs: []}]}",
            "podSpecPatch.containers[0].envs",
            "did you mean `env`?",
        ),
    ],
)
def test_a_field_that_kubernetes_does_not_know_is_a_warning(pod: str, place: str, hint: str) -> None:
    (finding,) = findings_of(pod)
    assert finding.startswith(f"Warning spec.activities[0].{place}: Kubernetes 1.36 has no such field")
    assert finding.endswith(hint)


def test_all_parts_of_a_pod_can_have_their_fields() -> None:
    secret = "{secretKeyRef: {name: a, key: b, optional: true}}"
    environment = f"env: [{{name: A, valueFrom: {secret}}}], resources: {{limits: {{x/gpu: 1}}}}"
    volumes = "volumes: [{name: v, projected: {sources: [{configMap: {name: a, items: [{key: a, path: b}]}}]}}]"
    container = f"{{image: i, {environment}, volumeMounts: [{{name: v, mountPath: /v}}]}}"
    selector = "nodeSelector: {any-label: x}, tolerations: [{key: a, operator: Exists}]"
    assert findings_of(f"podTemplate: {{spec: {{{selector}, {volumes}, containers: [{container}]}}}}") == []


def test_each_of_several_errors_is_reported() -> None:
    assert len(findings_of('container: {image: "${a}", args: ["${b}", "${input}", "${c}"]}')) == 3


def test_an_expression_in_a_field_without_evaluation_is_an_error() -> None:
    (finding,) = findings_of('container: {image: i, command: [echo, "${input.name}"]}')
    assert finding.startswith("Error spec.activities[0].container.command[1]: `${…}` is not evaluated here")
    for expression in ("${1 + 1}", "${ {'a': {'b': 1}}.a.b }", "to ${now.getHours()}"):
        (finding,) = findings_of(f'container: {{image: i, command: [echo, "{expression}"]}}')
        assert finding.startswith("Error spec.activities[0].container.command[1]: "), expression
    # A shell could have a variable of that name.
    (finding,) = findings_of('container: {image: i, command: [sh, -c, "for item in a b; do echo ${item}; done"]}')
    assert finding.startswith("Warning spec.activities[0].container.command[2]: ")
    assert findings_of('container: {image: i, workingDir: "/${run.name}"}')
    template = '{spec: {nodeSelector: {zone: "${input.zone}"}, containers: [{name: m, image: i}]}}'
    (finding,) = findings_of(f"podTemplate: {template}")
    assert finding.startswith("Error spec.activities[0].podTemplate.spec.nodeSelector.zone: ")
    # Variables of the shell are not expressions.
    assert findings_of('container: {image: i, command: [sh, -c, "echo ${HOME} ${1:-x} $HOME $${input}"]}') == []


@pytest.mark.parametrize(
    "container",
    [
        'command: [sh, -c], args: ["echo ${input}"]',
        'command: [/bin/bash, -euc], args: ["echo ${input}", a]',
        'command: [python3.12, -c], args: ["print(${input})"]',
        'command: [perl, -e], args: ["print ${input}"]',
        'args: [sh, -c, "echo ${input}"]',
        'command: [sh], args: [-c, "echo ${input}"]',
    ],
)
def test_an_expression_in_a_shell_program_causes_a_warning(container: str) -> None:
    (finding,) = findings_of(f"container: {{image: i, {container}}}")
    assert finding.startswith("Warning spec.activities[0].container.args[")
    assert "anyone who can choose the value can run any command" in finding


@pytest.mark.parametrize(
    "container",
    [
        'command: [sh, -c, "echo $1"], args: [name, "${input}"]',
        'command: [sh, -c], args: ["echo $$1", name, "${input}"]',
        'command: [sh, -c], args: ["echo $${input}"]',
        'command: [python, main.py], args: ["${input}"]',
        'args: ["${input}"]',
    ],
)
def test_an_expression_next_to_a_program_is_safe(container: str) -> None:
    assert findings_of(f"container: {{image: i, {container}}}") == []


@pytest.mark.parametrize(
    ("part", "where"),
    [
        ("steps: [{name: t, waitForSignal: {name: 'sig-${input.x}'}}]", "spec.steps[0].waitForSignal.name"),
        ("steps: [{name: t, fail: {type: '${input.x}'}}]", "spec.steps[0].fail.type"),
        (
            (
                "{steps: [{name: t, sleep: {duration: 1s}, catch: [{errorTypes: ['${input.x}'], call: {block: b}}]}], "
                "blocks: [{name: b, steps: [{name: n, set: {x: 1}}]}]}"
            ),
            "spec.steps[0].catch[0].errorTypes[0]",
        ),
        ("steps: [{name: t, set: {x: 1}, limits: [{name: 'l-${input.x}'}]}]", "spec.steps[0].limits[0].name"),
        (
            (
                "{steps: [{name: t, set: {x: 1}}], activities: [{name: a, startToCloseTimeout: 1m, container: {image: i}, "
                "failureTypes: [{exitCodes: [3], type: '${input.x}'}]}]}"
            ),
            "spec.activities[0].failureTypes[0].type",
        ),
        (
            "{steps: [{name: t, set: {x: 1}}], input: {schema: {properties: {x: {type: string, default: '${now}'}}}}}",
            "spec.input.schema.properties.x.default",
        ),
        ("{steps: [{name: t, set: {x: 1}}], input: {schema: {description: 'As in `${input.x}`'}}}", None),
        ("steps: [{name: t, signal: {workflowId: 'w-${input.x}', name: 'go-${input.x}'}}]", None),
        ("{steps: [{name: t, set: {x: 1}}], stepsTimeout: '${input.x}'}", None),
        (
            (
                "{steps: [{name: t, set: {x: 1}}], activities: [{name: a, startToCloseTimeout: 1m, container: {image: i}, "
                "limits: [{name: l, key: '${input.x}'}], podSpecPatch: {nodeSelector: {zone: '${input.x}'}}}]}"
            ),
            None,
        ),
    ],
)
def test_an_expression_in_any_text_that_is_used_unchanged_is_an_error(part: str, where: str | None) -> None:
    """Found by an audit: names of signals and types of errors kept `${…}` without a finding."""
    spec = WorkflowSpec.parse(yaml.safe_load(part if part.startswith("{") else f"{{{part}}}"))
    found = [each.path for each in check(spec).findings if "is not evaluated here" in each.message]
    assert found == ([where] if where else [])


def test_argo_tags_cause_a_warning_in_every_field() -> None:
    (finding,) = findings_of('container: {image: i, command: [echo, "{{inputs.parameters.name}}"]}')
    assert finding.startswith(
        "Warning spec.activities[0].container.command[1]: `{{inputs.parameters.name}}` looks like"
    )
    steps = [{"name": "s", "set": {"a": {"b": ["x {{=steps.a.outputs.result}}"]}}}]
    (found,) = check(WorkflowSpec.parse({"steps": steps})).findings
    assert found.path == "spec.steps[0].set.a.b[0]"
    # Programs have braces of their own.
    assert (
        findings_of(
            """container: {image: i, command: [python, -c, 'print(f"{{{x}}}") # {{"done": 1}} {{ .Values.x }}']}"""
        )
        == []
    )


def test_new_runs_are_rejected_with_the_errors_of_containers() -> None:
    spec = {"activities": [activity(args=["${nope}"]).dump()], "steps": [{"name": "s", "activity": {"name": "a"}}]}
    checked = check(WorkflowSpec.parse(spec))
    with pytest.raises(InvalidWorkflowError, match="nope"):
        raise InvalidWorkflowError(checked.errors)


# Services

_SERVED = "container: {image: i}\nservices:\n- "


@pytest.mark.parametrize(
    ("service", "want"),
    [
        ("{name: db, image: i, readinessProbe: {tcpSocket: {port: 1}}}", None),
        ("{name: db, image: i, startupProbe: {tcpSocket: {port: 1}}}", None),
        ("{name: db, image: i}", "Warning spec.activities[0].services[0].readinessProbe: is not set"),
        (
            "{name: db, image: i, startupProbe: {}, restartPolicy: Never}",
            "Error spec.activities[0].services[0].restartPolicy: must not be used",
        ),
        ("{name: db, image: i, startupProbe: {}, comand: [x]}", "Warning spec.activities[0].services[0].comand"),
        (
            "{name: db, image: '${inputs.x}', startupProbe: {}}",
            "Error spec.activities[0].services[0].image: `inputs.x`",
        ),
        ("{name: db, image: i, startupProbe: {}, args: [1]}", "Error spec.activities[0].services[0].args[0]: must be"),
    ],
)
def test_services_are_checked_as_containers(service: str, want: str | None) -> None:
    findings = findings_of(_SERVED + service)
    assert len(findings) == (want is not None), findings
    assert all(finding.startswith(want or "") for finding in findings)


def test_the_expressions_of_a_service_are_evaluated_for_each_attempt() -> None:
    service = {"name": "db", "image": "db:${input}", "env": [{"name": "N", "value": "${attempt}"}]}
    made = Activity.parse(
        {"name": "a", "startToCloseTimeout": "1m", "container": {"image": "i"}, "services": [service]}
    )
    (found,) = containers.resolve(made, input="18", run=RUN, attempt=2).services
    assert found.dump() == {"name": "db", "image": "db:18", "env": [{"name": "N", "value": "2"}]}
