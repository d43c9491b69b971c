"""Errors of `lint` about expressions in data, where they are not evaluated."""

import json

import pytest

from support.cli import perdure


def test_expressions_in_data_are_reported() -> None:
    text = """
apiVersion: perdure.dev/v1alpha1
kind: Schedule
metadata: {name: nightly}
spec:
  cron: ["@daily"]
  workflowRunTemplate:
    spec:
      workflow: {name: good}
      workflowId: at-${schedule.scheduledTime}
      input: {day: "${schedule.scheduledTime}", sum: "${1 + 1}", literal: "$${run.name} $${HOME} $${ x"}
---
apiVersion: perdure.dev/v1alpha1
kind: WorkflowRun
metadata: {name: run}
spec:
  workflow: {type: Order, taskQueue: orders}
  workflowId: order-${run.name}
  searchAttributes: {Day: "${now}"}
---
apiVersion: perdure.dev/v1alpha1
kind: Operation
metadata: {name: add}
spec:
  target: {kind: WorkflowRun, workflowId: cart}
  signalWithStart: {name: add, input: "${run.name}", start: {workflow: {name: good}, input: "${input}"}}
---
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: good}
spec:
  input: {default: {day: "${now}"}}
  steps: [{name: nap, sleep: {duration: 1s}}]
"""
    done = perdure("lint", "-f", "-", "--output", "json", stdin=text)
    assert done.exit_code == 1, done.stdout
    found = [each for each in json.loads(done.stdout)["findings"] if "is not evaluated here" in each["message"]]
    assert {each["severity"] for each in found} == {"Error"}
    assert [(each["object"], each["path"]) for each in found] == [
        ("Schedule/nightly", "spec.workflowRunTemplate.spec.workflowId"),
        ("WorkflowRun/run", "spec.workflowId"),
        ("WorkflowRun/run", "spec.searchAttributes.Day"),
        ("Operation/add", "spec.signalWithStart.input"),
        ("Operation/add", "spec.signalWithStart.start.input"),
        ("Workflow/good", "spec.input.default.day"),
    ]


def linted(input_: str, workflow: str = "{name: w}", severity: str = "Error") -> list[tuple[str, str]]:
    """The paths and messages of the findings of a severity in a Schedule with this input."""
    text = f"""
apiVersion: perdure.dev/v1alpha1
kind: Schedule
metadata: {{name: nightly}}
spec:
  cron: ["@daily"]
  timeZone: Europe/Berlin
  workflowRunTemplate: {{spec: {{workflow: {workflow}, input: {input_}}}}}
---
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {{name: w}}
spec:
  input: {{schema: {{type: object, properties: {{day: {{type: string}}, number: {{type: integer}}}}}}}}
  steps: [{{name: nap, sleep: {{duration: 1s}}}}]
"""
    done = perdure("lint", "-f", "-", "--output", "json", stdin=text)
    found = json.loads(done.stdout)["findings"]
    return [(each["path"], each["message"]) for each in found if each["severity"] == severity]


@pytest.mark.parametrize(
    ("input_", "want"),
    [
        ("{day: '${schedule.localdate}'}", "no field `localdate` in `schedule`, did you mean `localDate`"),
        ("{day: 'of ${schedule.foo}'}", "there is no field `foo` in `schedule`"),
        ("{day: '${schedule.localDate + 1}'}", "`schedule.localDate + 1` always fails"),
        ("{day: '${now}'}", "`now`: unknown name `now`"),
        ("{day: '${HOME}'}", "for a literal `${`, write `$${`"),
        ("{day: '${schedule.scheduledTime'}", "the closing } is missing"),
        ("{day: '${schedule.scheduledTime.nope()}'}", "`schedule.scheduledTime.nope()`: "),
    ],
)
def test_an_invalid_expression_in_the_input_of_a_schedule_is_an_error(input_: str, want: str) -> None:
    ((path, message),) = linted(input_)
    assert path == "spec.workflowRunTemplate.spec.input.day"
    assert want in message


def test_the_input_of_a_schedule_is_checked_with_the_values_of_its_expressions() -> None:
    assert linted("{day: '${schedule.localDate}', number: '${schedule.scheduledTime.getHours()}'}") == []
    ((path, message),) = linted("{number: '${schedule.localDate}'}")
    assert path == "spec.workflowRunTemplate.spec.input.number"
    assert "does not match the input schema" in message
    # What it is depends on the previous run.
    assert linted("{number: '${schedule.lastCompletionResult.number + 1}'}") == []


@pytest.mark.parametrize(
    ("expression", "doubtful"),
    [
        ("schedule.scheduledTime.getHours(schedule.timeZone)", True),
        ("schedule.scheduledTime.getHours(schedule.utcOffset)", False),
        ("{'31': 1}[schedule.localDate.split('-')[2]]", False),
        ("schedule.lastFailure.message", False),
    ],
)
def test_an_expression_that_has_no_value_at_any_time_is_doubtful(expression: str, doubtful: bool) -> None:
    """Found by an audit: such a Schedule was accepted, and failed when its run was due."""
    text = json.dumps({"day": f"${{string({expression})}}"})
    assert linted(text) == []
    found = linted(text, severity="Warning")
    assert [path for path, _ in found] == (["spec.workflowRunTemplate.spec.input.day"] if doubtful else [])
    assert all("had no value at any of the times" in message for _, message in found)


@pytest.mark.parametrize("input_", ["'${1 + 1}'", '\'${ {"a": {"b": 1}} }\'', "'${schedule.localDate}'"])
def test_the_input_of_code_is_not_evaluated(input_: str) -> None:
    ((path, message),) = linted(input_, "{type: Report, taskQueue: reports}")
    assert path == "spec.workflowRunTemplate.spec.input"
    assert "is not evaluated here" in message


def test_expressions_in_annotations_of_runs_are_reported() -> None:
    text = """
apiVersion: perdure.dev/v1alpha1
kind: Schedule
metadata: {name: nightly, annotations: {note: "${now}"}}
spec:
  cron: ["@daily"]
  workflowRunTemplate:
    metadata: {annotations: {example.com/day: "of ${schedule.localDate}", shell: "${HOME}"}}
    spec: {workflow: {name: good}}
---
apiVersion: perdure.dev/v1alpha1
kind: WorkflowRun
metadata:
  name: run
  annotations: {example.com/run: "${run.name}", kubectl.kubernetes.io/last-applied-configuration: "{a: ${run.name}}"}
spec: {workflow: {name: good}}
---
apiVersion: perdure.dev/v1alpha1
kind: WorkflowDefaults
metadata: {name: default}
spec: {runMetadata: {annotations: {link: "https://logs/${run.name}"}}}
---
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: good}
spec: {steps: [{name: nap, sleep: {duration: 1s}}]}
"""
    done = perdure("lint", "-f", "-", "--output", "json", stdin=text)
    assert done.exit_code == 0, done.stdout
    found = json.loads(done.stdout)["findings"]
    assert [(each["object"], each["path"], each["severity"], each["line"]) for each in found] == [
        ("Schedule/nightly", "spec.workflowRunTemplate.metadata.annotations.example.com/day", "Warning", 8),
        ("WorkflowRun/run", "metadata.annotations.example.com/run", "Warning", 15),
        ("WorkflowDefaults/default", "spec.runMetadata.annotations.link", "Warning", 21),
    ]
    assert found[0]["message"] == "`${…}` is not evaluated here: the run gets this text; write the value itself"


def webhook(spec: str, workflow: str = "build") -> list[tuple[str, str, str]]:
    """The severities, paths, and messages of the findings in a Webhook, next to a Workflow `build`."""
    text = f"""
apiVersion: perdure.dev/v1alpha1
kind: Webhook
metadata: {{name: push}}
spec:
  signature: {{secret: {{name: shared}}}}
  start: {{workflow: {{name: {workflow}}}}}
  {spec}
---
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {{name: build}}
spec: {{steps: [{{name: go, waitForSignal: {{name: approved, timeout: 1h}}}}]}}
"""
    done = perdure("lint", "-f", "-", "--output", "json", stdin=text)
    return [(each["severity"], each["path"], each["message"]) for each in json.loads(done.stdout)["findings"]]


@pytest.mark.parametrize(
    ("spec", "path", "want"),
    [
        ("when: '${headers.event}'", "spec.when", "has type string, but must be true or false"),
        ("when: '${headers.number > 3}'", "spec.when", "`headers.number > 3` always fails"),
        ("workflowId: \"${int('x')}\"", "spec.workflowId", "always fails"),
        ("deliveryId: '${payload.id}'", "spec.deliveryId", "unknown name `payload`"),
    ],
)
def test_the_expressions_of_a_webhook_are_checked(spec: str, path: str, want: str) -> None:
    ((severity, place, message),) = webhook(spec)
    assert (severity, place) == ("Error", path)
    assert want in message


def test_a_webhook_with_valid_expressions_has_no_findings() -> None:
    assert webhook("when: \"${headers['x-event'] == 'push' && body.ref.startsWith('refs/')}\"") == []
    assert webhook("deliveryId: '${body.id}'") == []


def test_the_names_in_a_webhook_are_checked() -> None:
    assert [found[:2] for found in webhook("workflowId: w", workflow="biuld")] == [
        ("Warning", "spec.start.workflow.name")
    ]
    ((severity, path, message),) = webhook("workflowId: w\n  signal: {name: aproved}")
    assert (severity, path) == ("Warning", "spec.signal.name")
    assert "did you mean `approved`" in message
