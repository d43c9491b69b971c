"""Requests to a run: each gets exactly one answer, even if it breaks the reconciliation."""

import pytest
from structlog.testing import capture_logs

from perdure.api.reasons import ConditionReason
from perdure.controller.reconcile.reconciler import Inbox
from perdure.controller.runs.requests import carriers
from perdure.engine import inputs
from perdure.kube import client as kube


def signal(name: str, given: object = None) -> inputs.SignalRequested:
    return inputs.SignalRequested(request_id=name, signal_name=name, input=given)


class Asking:
    """An inbox with some requests, and the answers to them."""

    def __init__(self, *requests: inputs.Request) -> None:
        self.inbox: Inbox[inputs.Request] = Inbox("the run")
        self.answers: list[tuple[str, str]] = []
        for each in requests:
            self.inbox.put(each, lambda answer, who=each.request_id: self.answers.append((who, answer.reason)))  # type: ignore[misc]


@pytest.fixture
def asking() -> Asking:
    return Asking(signal("a"), signal("b", "text"), inputs.TerminateRequested(request_id="c"))


def test_each_request_is_rejected_once(asking: Asking) -> None:
    for _ in range(2):
        asking.inbox.refuse_all(ConditionReason.STATE_DAMAGED, "no")
    assert asking.answers == [(who, "StateDamaged") for who in "abc"]
    assert not asking.inbox


def test_a_withdrawn_request_gets_no_answer(asking: Asking) -> None:
    asking.inbox.withdraw("b")
    asking.inbox.refuse_all(ConditionReason.STATE_DAMAGED, "no")
    assert [who for who, _ in asking.answers] == ["a", "c"]


def test_only_the_request_that_fails_a_reconciliation_is_rejected(asking: Asking) -> None:
    with capture_logs():
        assert asking.inbox.refuse_failing(asking.inbox.next(), RuntimeError("no"))
        assert asking.answers == []
        first = asking.inbox.next()
        assert [each.request.request_id for each in first] == ["a"]
        assert asking.inbox.refuse_failing(first, RuntimeError("no"))
    assert asking.answers == [("a", "InvalidInput")]
    assert len(asking.inbox.next()) == 2


@pytest.mark.parametrize("error", [kube.NoResponseError("reset"), kube.ApiError(500, "InternalError", "no")])
def test_errors_of_the_api_server_reject_no_request(asking: Asking, error: Exception) -> None:
    assert not asking.inbox.refuse_failing(asking.inbox.next(), error)
    assert not asking.inbox.one_by_one


def test_a_request_with_a_payload_can_be_rejected_for_its_size(asking: Asking) -> None:
    [carrier] = carriers(asking.inbox.next())
    asking.inbox.refuse(carrier, ConditionReason.PAYLOAD_TOO_LARGE, "no")
    assert asking.answers == [("b", "PayloadTooLarge")]
    assert not carriers(asking.inbox.next())


def test_requests_can_be_found_by_kind(asking: Asking) -> None:
    assert asking.inbox.has(inputs.TerminateRequested, inputs.CancelRequested)
    assert not asking.inbox.has(inputs.CancelRequested)
