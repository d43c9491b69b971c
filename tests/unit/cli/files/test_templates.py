"""Output formats that users write themselves: as kubectl has them, for every verb with -o."""

import json
from typing import Any

import pytest

from perdure.cli.templates import TemplateError, parse, render
from support.apiserver import ApiServer, items
from support.cli import perdure

RUNS = "/apis/perdure.dev/v1alpha1/namespaces/shop/workflowruns"
FIRST: dict[str, Any] = {
    "kind": "WorkflowRun",
    "metadata": {"name": "first", "namespace": "shop", "labels": {"shop.example/team": "tea", "a": "b"}},
    "status": {"phase": "Running", "pending": 2, "conditions": [{"type": "Ready", "status": "True"}]},
}
SECOND: dict[str, Any] = {"kind": "WorkflowRun", "metadata": {"name": "second", "namespace": "shop"}, "status": {}}
LIST = {"items": [FIRST, SECOND]}


@pytest.mark.parametrize(
    ("template", "want"),
    [
        ("{.items[*].metadata.name}", "first second"),
        (".items[0].metadata.name", "first"),
        ("items[0].metadata.name", "first"),
        ("{$.items[1].metadata.name}!", "second!"),
        ("{.items[-1:].metadata.name}", "second"),
        ("{..phase}", "Running"),
        ("{.items[0].status.pending}", "2"),
        ("{.items[0].metadata.labels}", '{"shop.example/team":"tea","a":"b"}'),
        (r"{.items[0].metadata.labels.shop\.example/team}", "tea"),
        ("{.items[0].metadata.labels['shop.example/team']}", "tea"),
        ('{.items[0].status.conditions[?(@.type=="Ready")].status}', "True"),
        ('{range .items[*]}{.metadata.name}{"\\t"}{.status.phase}{"\\n"}{end}', "first\tRunning\nsecond\t\n"),
        (
            "{range .items[*]}{@.kind}{' '}{range .status.conditions[*]}{.type}{end}{end}",
            "WorkflowRun ReadyWorkflowRun ",
        ),
        ("{.nothing}", ""),
    ],
)
def test_a_jsonpath_template_is_evaluated_as_by_kubectl(template: str, want: str) -> None:
    assert render(f"jsonpath={template}", LIST) == want


def test_custom_columns_are_a_table() -> None:
    spec = "custom-columns=NAME:.metadata.name,READY:{.status.conditions[*].status},LABELS:metadata.labels.a"
    assert render(spec, LIST).splitlines() == [
        "NAME     READY    LABELS",
        "first    True     b",
        "second   <none>   <none>",
    ]
    assert render("custom-columns=NAME:.metadata.name", FIRST).splitlines() == ["NAME", "first"]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("jsonpath={.a", "brace that is not closed"),
        ("jsonpath={.a[}", "`.a[` is not a valid path"),
        ("jsonpath={range .a[*]}{.b}", "has no `{end}`"),
        ("jsonpath={.a}{end}", "`{end}` has no `{range}`"),
        (r"jsonpath={'\z'}", "is not a valid string"),
        ("custom-columns=NAME", "`NAME` does not have the form TITLE:PATH"),
        ("custom-columns=NAME:.a[", "`.a[` is not a valid path"),
    ],
)
def test_an_invalid_template_is_rejected(output: str, said: str) -> None:
    with pytest.raises(TemplateError) as caught:
        parse(output)
    assert said in str(caught.value)


def test_templates_use_the_json_output_of_a_verb(server: ApiServer) -> None:
    server.answers |= {RUNS: items(FIRST, SECOND), f"{RUNS}/first": FIRST}
    template = 'jsonpath={range .items[*]}{.metadata.name}{"\\n"}{end}'
    assert perdure("list", "-o", template).stdout == "first\nsecond\n"
    assert perdure("list", "-o", "custom-columns=RUN:.metadata.name").stdout == "RUN\nfirst\nsecond\n"
    total = json.loads(perdure("count", "-o", "json").stdout)["total"]
    assert perdure("count", "-o", "jsonpath={.total}").stdout == f"{total}\n"


def test_an_invalid_template_is_rejected_before_any_request(server: ApiServer) -> None:
    done = perdure("start", "order-flow", "-o", "jsonpath={.metadata")
    assert (done.exit_code, server.asked, server.created) == (2, [], [])
    assert "brace that is not closed" in " ".join(done.stderr.split())
