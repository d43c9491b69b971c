"""Warnings of `lint` about expressions in data, where they are not evaluated."""

import json

from click.testing import CliRunner

from perdure.cli.app import build


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
      input: {day: "${schedule.scheduledTime}", list: ["to ${now}"], literal: "$${run.name} ${HOME} ${ x"}
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
    done = CliRunner().invoke(build("perdure"), ["lint", "-f", "-", "--output", "json"], input=text)
    assert done.exit_code == 0, done.stdout
    found = [each for each in json.loads(done.stdout)["findings"] if "is not evaluated here" in each["message"]]
    assert {each["severity"] for each in found} == {"Warning"}
    assert [(each["object"], each["path"]) for each in found] == [
        ("Schedule/nightly", "spec.workflowRunTemplate.spec.input.day"),
        ("Schedule/nightly", "spec.workflowRunTemplate.spec.input.list[0]"),
        ("WorkflowRun/run", "spec.workflowId"),
        ("WorkflowRun/run", "spec.searchAttributes.Day"),
        ("Operation/add", "spec.signalWithStart.input"),
        ("Operation/add", "spec.signalWithStart.start.input"),
        ("Workflow/good", "spec.input.default.day"),
    ]
