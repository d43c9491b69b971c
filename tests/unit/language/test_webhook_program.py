"""Which object a request to a Webhook creates."""

from typing import Any

import pytest

from perdure.api.kinds.webhook import WebhookSpec
from perdure.language.expressions import ExpressionError
from perdure.language.webhooks import UnusableRequestError, WebhookProgram, WebhookRequest

META = {"name": "push", "namespace": "shop", "uid": "u-1"}
SPEC: dict[str, Any] = {"signature": {"secret": {"name": "shared"}}, "start": {"workflow": {"name": "build"}}}


def created(spec: dict[str, Any], body: Any = None, headers: dict[str, str] | None = None, number: str = "1") -> Any:
    program = WebhookProgram.compile(WebhookSpec.parse({**SPEC, **spec}))
    made = program.created(META, WebhookRequest(headers=headers or {}, body=body, id=number))
    return None if made is None else made.object


def test_a_run_gets_the_values_of_its_expressions() -> None:
    start = {"workflow": {"type": "Build", "taskQueue": "ci"}, "input": {"who": "${headers.sender}", "n": "${body.n}"}}
    run = created({"start": start, "workflowId": "b-${body.n}"}, {"n": 7}, {"sender": "Ada"})
    assert run["spec"] == {"workflow": start["workflow"], "input": {"who": "Ada", "n": 7}, "workflowId": "b-7"}
    assert run["metadata"]["labels"] == {"perdure.dev/webhook": "push"}
    assert run["metadata"]["annotations"] == {
        "perdure.dev/delivery-id": "1",
        "audit.perdure.dev/created-by": "webhook:shop/push",
    }


def test_the_name_depends_only_on_the_id() -> None:
    names = [created({}, body, number=number)["metadata"]["name"] for body, number in ((1, "1"), (2, "1"), (1, "2"))]
    assert names[0] == names[1] != names[2]
    annotations = created({"deliveryId": "${body.id}"}, {"id": 3})["metadata"]["annotations"]
    assert annotations["perdure.dev/delivery-id"] == "3"


def test_a_signal_becomes_an_operation() -> None:
    signal = {"name": "paid-${body.n}", "input": "${body}"}
    made = created({"start": None, "signal": signal, "workflowId": "order"}, {"n": 1})
    assert (made["kind"], made["spec"]) == (
        "Operation",
        {
            "target": {"kind": "WorkflowRun", "workflowId": "order"},
            "signal": {"name": "paid-1", "input": {"n": 1}},
        },
    )
    both = created({"signal": {"name": "paid"}, "workflowId": "order"})["spec"]["signalWithStart"]
    assert both == {"name": "paid", "start": {"workflow": {"name": "build"}}}


def test_an_expression_in_the_name_of_a_workflow_is_found() -> None:
    start = {"workflow": {"type": "${body.type}", "taskQueue": "ci"}}
    (found,) = WebhookProgram.compile(WebhookSpec.parse({**SPEC, "start": start})).findings()
    assert str(found).startswith(
        "spec.start.workflow.type: `${…}` is not evaluated here: a Webhook starts one Workflow"
    )


def test_expressions_do_not_see_credentials() -> None:
    headers = {"authorization": "Bearer x", "cookie": "c", "x-hub-signature-256": "s", "x-event": "push"}
    run = created({"start": {"workflow": {"name": "build"}, "input": "${headers}"}}, headers=headers)
    assert run["spec"]["input"] == {"x-event": "push"}


def test_expressions_in_a_body_are_not_evaluated() -> None:
    run = created({"start": {"workflow": {"name": "build"}, "input": "${body}"}}, {"text": "${headers}"})
    assert run["spec"]["input"] == {"text": "${headers}"}


def test_a_request_is_ignored_if_when_is_false() -> None:
    assert created({"when": "${body.go}"}, {"go": False}) is None
    assert created({"when": "${body.go}"}, {"go": True}) is not None


@pytest.mark.parametrize(
    ("spec", "body", "part"),
    [
        ({"workflowId": "${body.order}"}, {}, "spec.workflowId: ${body.order}: "),
        ({"workflowId": "${body.order}"}, {"order": ""}, "spec.workflowId: must have 1 to 1,000 characters"),
        ({"when": "${body.go}"}, {"go": "yes"}, "a condition must give true or false"),
    ],
)
def test_a_request_for_which_an_expression_fails_is_rejected(spec: dict[str, Any], body: Any, part: str) -> None:
    with pytest.raises(UnusableRequestError) as caught:
        created(spec, body)
    assert part in str(caught.value)


def test_expressions_read_body_and_headers_only() -> None:
    with pytest.raises(ExpressionError):
        created({"workflowId": "${run.name}"})
