"""Manifests as text: `perdure.api.to_yaml` and `from_yaml`, and changes that leave the rest of a text as it is."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from perdure import api
from perdure.api import activities, steps
from perdure.api.yaml_text import Loader
from support.manuals import REPOSITORY

WORKFLOW = """\
# Copies orders. Ask the shop team before you change it.
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: orders, labels: {team: shop}}   # the owner
spec:
  activities:
  # The card is charged here.
  - name: charge
    startToCloseTimeout: 60s   # the bank is slow
    container:
      image: "registry.example.com/bank:1"
      command: [charge]
      env:
      - {name: MODE, value: "on"}
  - name: ship
    startToCloseTimeout: 5m
    container: {image: ship}
  steps:
  - name: charge
    activity: {name: charge, input: "${input}"}

  # Ships it.
  - name: ship
    activity: {name: ship}
    timeout: 1h
  output: |
    ${steps.ship.output}

---
# Another API; not ours.
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
data: {answer:   "42"}
"""


def changed(text: str, change: dict[str, Any]) -> str:
    """The text after a change of the spec of its Workflow."""
    workflow = api.from_yaml(text, api.Workflow)
    spec = api.WorkflowSpec.parse({**api.to_manifest(workflow)["spec"], **change})
    return api.to_yaml(workflow.model_copy(update={"spec": spec}), like=text)


def test_an_object_that_has_not_changed_is_written_as_it_was() -> None:
    assert api.to_yaml(api.from_yaml(WORKFLOW, api.Workflow), like=WORKFLOW) == WORKFLOW
    assert api.to_yaml(like=WORKFLOW) == WORKFLOW


MANIFESTS = [
    file for file in sorted((REPOSITORY / "examples").rglob("*.yaml")) if "apiVersion: perdure.dev/" in file.read_text()
]


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_the_examples_survive_a_round_trip(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    found = api.all_from_yaml(text)
    assert api.to_yaml(*found, like=text) == text
    assert api.all_from_yaml(api.to_yaml(*found)) == found


def manifest_steps(*made: api.Step) -> list[dict[str, Any]]:
    return [each.model_dump(mode="json", by_alias=True, exclude_unset=True) for each in made]


CHARGE, SHIP = api.from_yaml(WORKFLOW, api.Workflow).spec.steps
ACTIVITIES = api.to_manifest(api.from_yaml(WORKFLOW, api.Workflow))["spec"]["activities"]


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (
            {"activities": [{**ACTIVITIES[0], "startToCloseTimeout": "90s"}, ACTIVITIES[1]]},
            "startToCloseTimeout: 60s   # the bank is slow",
            "startToCloseTimeout: 1m30s   # the bank is slow",
        ),
        (
            {"steps": manifest_steps(CHARGE, steps.sleep("cool-off", "1d"), SHIP)},
            '    activity: {name: charge, input: "${input}"}\n',
            '    activity: {name: charge, input: "${input}"}\n  - name: cool-off\n    sleep: {duration: 1d}\n',
        ),
        (
            {"steps": manifest_steps(CHARGE)},
            "  # Ships it.\n  - name: ship\n    activity: {name: ship}\n    timeout: 1h\n",
            "",
        ),
        (
            {"steps": manifest_steps(CHARGE, SHIP.model_copy(update={"when": "${input.paid}"}))},
            "    timeout: 1h\n",
            "    timeout: 1h\n    when: '${input.paid}'\n",
        ),
        (
            {"failurePolicy": "Continue"},
            "    ${steps.ship.output}\n",
            "    ${steps.ship.output}\n  failurePolicy: Continue\n",
        ),
        ({"output": "y"}, "  output: |\n    ${steps.ship.output}\n", "  output: 'y'\n"),
        ({"output": {"a": [1, "on"]}}, "  output: |\n    ${steps.ship.output}\n", "  output:\n    a: [1, 'on']\n"),
        (
            {
                "activities": [
                    {
                        **ACTIVITIES[0],
                        "container": {**ACTIVITIES[0]["container"], "command": ["charge", "--now, please"]},
                    },
                    ACTIVITIES[1],
                ]
            },
            "command: [charge]",
            "command: [charge, '--now, please']",
        ),
        (
            {"activities": [ACTIVITIES[0], {**ACTIVITIES[1], "container": {"image": "ship:2"}}]},
            "container: {image: ship}",
            "container: {image: 'ship:2'}",
        ),
    ],
    ids=[
        "a scalar",
        "a new step",
        "a removed step",
        "a new field",
        "a new entry at the end",
        "a text as a block",
        "a block becomes a map",
        "a list in brackets",
        "a map in braces",
    ],
)
def test_only_what_has_changed_is_written(change: dict[str, Any], before: str, after: str) -> None:
    assert WORKFLOW.count(before) == 1
    assert changed(WORKFLOW, change) == WORKFLOW.replace(before, after)


def test_objects_that_the_text_does_not_have_follow_at_the_end() -> None:
    policy = api.RetryPolicy(
        metadata=api.ObjectMeta(name="patient"),
        spec=api.RetryPolicySpec(exponential=api.Exponential(maximum_attempts=5)),
    )
    text = api.to_yaml(policy, like=WORKFLOW)
    assert text.startswith(WORKFLOW)
    assert text.removeprefix(WORKFLOW) == (
        "---\napiVersion: perdure.dev/v1alpha1\nkind: RetryPolicy\nmetadata: {name: patient}\nspec:\n"
        "  exponential: {maximumAttempts: 5}\n"
    )


ALIASES = """\
apiVersion: perdure.dev/v1alpha1
kind: Workflow
metadata: {name: orders}
spec:
  activities:
  - &a
    name: charge
    startToCloseTimeout: 1m
    container: {image: bank}
  - <<: *a
    name: ship
  steps:
  - {name: charge, activity: {name: charge}}
"""


def test_a_change_of_what_an_alias_repeats_is_not_lost() -> None:
    workflow = api.from_yaml(ALIASES, api.Workflow)
    charge, ship = workflow.spec.activities
    longer = charge.model_copy(update={"start_to_close_timeout": ship.start_to_close_timeout * 2})  # type: ignore[operator]
    spec = workflow.spec.model_copy(update={"activities": [longer, ship]})
    text = api.to_yaml(workflow.model_copy(update={"spec": spec}), like=ALIASES)
    assert api.from_yaml(text, api.Workflow).spec.activities == [longer, ship]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "not valid YAML"),
        (
            "apiVersion: perdure.dev/v1alpha1\nkind: Workflow\nmetadata: {name: a}\nspec: {stepz: []}\n",
            "Workflow a: spec.stepz: unknown field; did you mean `steps`",
        ),
        ("apiVersion: v1\nkind: Secret\n", "must have one Workflow, but has 0"),
        (f"{WORKFLOW}---\n{WORKFLOW}", "must have one Workflow, but has 2"),
    ],
    ids=["broken", "an unknown field", "none", "two"],
)
def test_what_is_wrong_with_a_text_is_said(text: str, message: str) -> None:
    with pytest.raises(api.InvalidManifestError, match=message):
        api.from_yaml(text, api.Workflow)


def test_builders_make_the_steps_of_manifests() -> None:
    reserve = steps.activity("reserve", input={"order": "${input.id}"}, retry_policy="patient", heartbeat_timeout="30s")
    made = [
        reserve,
        steps.activity("fetch-data", "fetch", needs=[], timeout="1h", dead_letter=True),
        steps.sleep("cool-off", "30d", when="${input.trial}"),
        steps.wait_for_signal("paid", timeout="1d"),
        steps.approval("approve", message="${input.why}"),
        steps.wait_until("enough", "${vars.votes >= 3}"),
        steps.child("ship", api.QualifiedWorkflowReference(type="Ship", task_queue="ships"), input=1),
        steps.child("pack", parent_close_policy=api.ParentClosePolicy.ABANDON),
        steps.call("tidy", input={"a": steps.output_of(reserve), "b": steps.output_of("fetch-data")}),
        steps.parallel("both", {"left": "tidy", "right": api.BlockCall(block="tidy", input=2)}, wait=1),
        steps.switch("choose", {"${input.a}": "tidy"}, default="tidy"),
        steps.set_variables("count", {"votes": 0}),
        steps.signal("tell", "other", "done", input=True),
        steps.fail("stop", "too late", type="TooLate"),
        steps.continue_as_new("again"),
        steps.return_("end", {"ok": True}, needs=[reserve]),
    ]
    blocks = [api.Block(name="tidy", steps=[steps.return_("end")])]
    work = [
        activities.script("reserve", "python:3.13", "print(1)\n", command=["python"], start_to_close_timeout="10s"),
        activities.container(
            "fetch",
            "fetch:1",
            cpu="100m",
            memory="64Mi",
            env={"A": "1", "B": activities.secret_key("db", "password")},
            start_to_close_timeout="1m",
            retry_policy="patient",
        ),
        activities.of("notify", api.Http(url="https://chat.example.com"), schedule_to_close_timeout="1h"),
    ]
    workflow = api.Workflow(
        metadata=api.ObjectMeta(name="all"), spec=api.WorkflowSpec(activities=work, blocks=blocks, steps=made)
    )
    text = api.to_yaml(workflow)
    assert text == (Path(__file__).parent / "builders.yaml").read_text()
    assert api.from_yaml(text, api.Workflow) == workflow
    assert yaml.load(text, Loader=Loader) == api.to_manifest(workflow)
