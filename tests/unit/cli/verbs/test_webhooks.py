"""Webhooks on the command line: the list, and static checks."""

from typing import Any

from perdure.cli.files.lint import lint
from perdure.kube import clock
from perdure.language.program import Severity
from perdure.view.page import ASCII, Page
from perdure.view.tables import webhooks as table
from support.apiserver import ApiServer, items
from support.cli import perdure

MADE = {"name": "push", "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z"}
REFUSED = {"type": "Ready", "status": "False", "reason": "SecretNotReadable", "message": "there is none"}


def test_webhooks_are_shown_on_one_line_each() -> None:
    page = Page(now=clock.now(), width=80, glyphs=ASCII, iso=True, program="perdure", context=None)
    webhooks: list[dict[str, Any]] = [
        {"metadata": MADE, "spec": {"start": {"workflow": {"name": "build"}}}},
        {
            "metadata": MADE,
            "spec": {"start": {"workflow": {"type": "Order", "taskQueue": "q"}}, "signal": {"name": "paid"}},
            "status": {"path": "/webhooks/shop/push", "conditions": [REFUSED]},
        },
    ]
    heading, *lines = (
        [part for part in line.plain.split() if part != "-"]
        for line in table(webhooks, page, namespaces=True, wide=True)
    )
    assert heading == ["NAMESPACE", "NAME", "READY", "REASON", "STARTS", "SIGNALS", "AGE", "PATH", "MESSAGE"]
    time = "2026-01-01T00:00:00Z"
    assert lines == [
        ["shop", "push", "Unknown", "build", time],
        [
            *("shop", "push", "False", "SecretNotReadable", "Order", "paid", time, "/webhooks/shop/push"),
            *("there", "is", "none"),
        ],
    ]


def test_a_namespace_without_webhooks_is_reported(server: ApiServer) -> None:
    server.answers["/apis/perdure.dev/v1alpha1/namespaces/shop/webhooks"] = items()
    done = perdure("webhooks")
    assert done.exit_code == 0
    assert done.stderr.startswith("There are no Webhooks in namespace ")


def test_an_invalid_expression_is_found_without_a_cluster(tmp_path: Any) -> None:
    file = tmp_path / "webhook.yaml"
    file.write_text(
        "apiVersion: perdure.dev/v1alpha1\n"
        "kind: Webhook\n"
        "metadata: {name: push}\n"
        "spec:\n"
        "  signature: {secret: {name: github}}\n"
        "  workflowId: order-${input.order}\n"
        "  start: {workflow: {name: build}}\n"
    )
    found, other = lint([str(file)]).found
    assert (other.finding.path, other.finding.severity) == ("spec.start.workflow.name", Severity.NOTE)
    assert (found.finding.path, found.position.line) == ("spec.workflowId", 6)
