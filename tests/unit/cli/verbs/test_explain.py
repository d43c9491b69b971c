"""`perdure explain`: fields and reasons, without a cluster."""

import pytest
from click.testing import Result

from perdure.api.crdgen import KINDS
from perdure.api.reasons import ConditionReason, ConditionType, EventReason
from perdure.cli.explanations import topics
from support.cli import perdure


def explain(topic: str) -> Result:
    return perdure("explain", topic)


@pytest.mark.parametrize("topic", topics())
def test_every_kind_and_reason_is_explained_in_80_columns(topic: str) -> None:
    done = explain(topic)
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80


def test_the_topics_are_the_kinds_and_all_reasons() -> None:
    words = {*ConditionType, *ConditionReason, *EventReason}
    assert set(topics()) == {kind.__name__.lower() for kind in KINDS} | set(map(str, words))


@pytest.mark.parametrize("kind", ["wfr", "workflowruns", "WorkflowRun"])
def test_a_kind_can_be_named_in_several_ways(kind: str) -> None:
    assert explain(f"{kind}.spec.input").stdout.splitlines()[:2] == ["KIND:   WorkflowRun", "FIELD:  spec.input <any>"]


def test_a_field_of_a_list_is_shown_with_its_type_and_its_fields() -> None:
    lines = explain("workflow.spec.activities").stdout.splitlines()
    assert lines[1] == "FIELD:  spec.activities <[]object>"
    assert "  name <string> -required-" in lines
    assert explain("workflow.spec.activities.startToCloseTimeout").stdout.splitlines()[1].endswith("<string>")


def test_a_reason_is_case_insensitive_and_explained_for_each_kind() -> None:
    text = explain("noworker").stdout
    assert "NoWorker: reason of a condition\n" in text
    assert "NoWorker: reason of an Event\n" in text


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("workflow.spec.step", "`Workflow.spec` has no field `step`; did you mean `steps`?"),
        ("workflow.spec.steps.name.x", "its fields are not described"),
        ("NoWorkr", "there is no kind or reason `NoWorkr`; did you mean `NoWorker`?"),
        ("zzz", "pass a kind, the path of a field, or a reason"),
    ],
)
def test_an_unknown_topic_is_named(topic: str, said: str) -> None:
    done = explain(topic)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
