"""Requests to a run: each gets exactly one answer, even if it breaks the reconciliation."""

import pytest
from structlog.testing import capture_logs

from perdure.api.reasons import ConditionReason
from perdure.controller.reconcile.reconciler import Inbox
from perdure.controller.runs.run import carriers
from perdure.engine import inputs
from perdure.kube import client as kube


def signal(name: str, payload: object = None) -> inputs.SignalRequested:
    return inputs.SignalRequested(request_id=name, signal_name=name, input=payload)


class Requests:
    """An inbox with some requests, and the answers to them."""

    def __init__(self, *requests: inputs.Request) -> None:
        self.inbox: Inbox[inputs.Request] = Inbox("the run")
        self.answers: list[tuple[str, str]] = []
        for each in requests:
            self.inbox.put(each, lambda answer, who=each.request_id: self.answers.append((who, answer.reason)))  # type: ignore[misc]


@pytest.fixture
def sent() -> Requests:
    return Requests(signal("a"), signal("b", "text"), inputs.TerminateRequested(request_id="c"))


def test_each_request_is_rejected_once(sent: Requests) -> None:
    for _ in range(2):
        sent.inbox.refuse_all(ConditionReason.STATE_DAMAGED, "no")
    assert sent.answers == [(who, "StateDamaged") for who in "abc"]
    assert not sent.inbox


def test_a_withdrawn_request_gets_no_answer(sent: Requests) -> None:
    sent.inbox.withdraw("b")
    sent.inbox.refuse_all(ConditionReason.STATE_DAMAGED, "no")
    assert [who for who, _ in sent.answers] == ["a", "c"]


def test_only_the_request_that_fails_a_reconciliation_is_rejected(sent: Requests) -> None:
    with capture_logs():
        assert sent.inbox.refuse_failing(sent.inbox.next(), RuntimeError("no"))
        assert sent.answers == []
        first = sent.inbox.next()
        assert [each.request.request_id for each in first] == ["a"]
        assert sent.inbox.refuse_failing(first, RuntimeError("no"))
    assert sent.answers == [("a", "InvalidInput")]
    assert len(sent.inbox.next()) == 2


@pytest.mark.parametrize("error", [kube.NoResponseError("reset"), kube.ApiError(500, "InternalError", "no")])
def test_errors_of_the_api_server_reject_no_request(sent: Requests, error: Exception) -> None:
    assert not sent.inbox.refuse_failing(sent.inbox.next(), error)
    assert not sent.inbox.one_by_one


def test_a_request_with_a_payload_can_be_rejected_for_its_size(sent: Requests) -> None:
    [carrier] = carriers(sent.inbox.next())
    sent.inbox.refuse(carrier, ConditionReason.PAYLOAD_TOO_LARGE, "no")
    assert sent.answers == [("b", "PayloadTooLarge")]
    assert not carriers(sent.inbox.next())


def test_requests_can_be_found_by_kind(sent: Requests) -> None:
    assert sent.inbox.has(inputs.TerminateRequested, inputs.CancelRequested)
    assert not sent.inbox.has(inputs.CancelRequested)
