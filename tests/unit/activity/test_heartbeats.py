"""Heartbeats: throttling, delivery, and the meaning of responses."""

import re
import shutil
import signal
from typing import Any

import pytest

from perdure.activity import CancelledError, PayloadTooLargeError, SupersededError

DETAILS = "perdure.dev/heartbeat-details"
CANCEL = "perdure.dev/cancel-requested"


def details(request: dict[str, Any]) -> Any:
    return request["metadata"]["annotations"][DETAILS]


def test_a_heartbeat_renews_the_lease_with_the_pods_token(api: Any, pod: Any) -> None:
    pod.with_lease().heartbeats().beat({"done": 3})
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", api.lease["spec"]["renewTime"])
    assert api.annotations == {DETAILS: '{"done":3}'}
    assert api.tokens == ["Bearer secret-1"]


def test_a_renewed_token_is_used(api: Any, pod: Any, clock: Any) -> None:
    beats = pod.with_lease().heartbeats(clock)
    beats.beat(None)
    pod.token_file.write_text("secret-2")
    clock.seconds += 60
    beats.beat(None)
    assert api.tokens == ["Bearer secret-1", "Bearer secret-2"]


def test_a_tight_loop_sends_once_per_quarter_of_the_timeout(api: Any, pod: Any, clock: Any) -> None:
    beats = pod.with_lease(60).heartbeats(clock)
    for _ in range(1000):
        beats.beat(None)
    assert len(api.requests) == 1
    clock.seconds += 14.9
    beats.beat(None)
    assert len(api.requests) == 1
    clock.seconds += 0.1
    beats.beat(None)
    assert len(api.requests) == 2


def test_new_details_are_sent_earlier(api: Any, pod: Any, clock: Any) -> None:
    beats = pod.with_lease(3600).heartbeats(clock)
    beats.beat(1)
    clock.seconds += 5
    beats.beat(1)
    assert len(api.requests) == 1
    beats.beat(2)
    assert [details(request) for request in api.requests] == ["1", "2"]


def test_the_newest_heartbeat_is_sent_even_if_no_other_follows(api: Any, pod: Any) -> None:
    beats = pod.with_lease(0.4).heartbeats()
    for done in range(100):
        beats.beat(done)
    api.wait_for(lambda: api.annotations.get(DETAILS) == "99")
    assert len(api.requests) < 50


def test_a_heartbeat_without_details_clears_earlier_ones(api: Any, pod: Any, clock: Any) -> None:
    beats = pod.with_lease().heartbeats(clock)
    beats.beat(1)
    clock.seconds += 60
    beats.beat(None)
    assert details(api.requests[1]) is None
    assert api.annotations == {}


def test_a_cancellation_request_is_raised_once_and_remains_visible(api: Any, pod: Any, clock: Any) -> None:
    api.annotations[CANCEL] = "asked by ann"
    beats = pod.with_lease().heartbeats(clock)
    with pytest.raises(CancelledError, match="asked by ann"):
        beats.beat(None)
    clock.seconds += 60
    beats.beat("cleaning up")
    assert beats.cancelled() == "asked by ann"
    assert api.annotations[DETAILS] == '"cleaning up"'


def test_no_exception_handler_swallows_a_cancellation() -> None:
    assert not issubclass(CancelledError, Exception)
    assert issubclass(SupersededError, CancelledError)


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([404, 404], id="a Lease that does not exist yet"),
        pytest.param([403, 403], id="permissions that do not exist yet"),
        pytest.param([500], id="an error of the API server"),
        pytest.param([429, 503], id="an API server that is busy"),
        pytest.param([401, 401], id="a token that is renewed just now"),
        pytest.param([409], id="a conflict"),
        pytest.param([0], id="a connection that breaks"),
    ],
)
def test_sending_continues_in_the_background_after(api: Any, pod: Any, answers: list[int]) -> None:
    api.answers = list(answers)
    beats = pod.with_lease(2).heartbeats()
    beats.beat(1)
    beats.beat(2)
    api.wait_for(lambda: api.annotations.get(DETAILS) == "2")
    assert beats.cancelled() is None


def test_an_outage_does_not_delay_the_activity(api: Any, pod: Any, clock: Any) -> None:
    api.always = 500
    beats = pod.with_lease(60).heartbeats(clock)
    for _ in range(200):
        beats.beat(1)
    assert len(api.requests) < 5


def test_a_closed_keep_alive_connection_is_reopened(api: Any, pod: Any, clock: Any) -> None:
    api.close_after_answer = True
    beats = pod.with_lease().heartbeats(clock)
    for number in range(3):
        beats.beat(number)
        assert api.annotations == {DETAILS: str(number)}
        clock.seconds += 60
    assert len(api.requests) == 3


@pytest.mark.parametrize("status", [403, 404])
def test_a_rejection_after_a_successful_heartbeat_means_superseded(api: Any, pod: Any, clock: Any, status: int) -> None:
    beats = pod.with_lease().heartbeats(clock)
    beats.beat(1)
    api.always = status
    clock.seconds += 60
    for _ in range(2):
        with pytest.raises(SupersededError, match=f"refused with {status}"):
            beats.beat(2)
    assert len(api.requests) == 2, "nothing more is sent"
    assert beats.cancelled() is not None


def test_a_lasting_rejection_from_the_start_eventually_means_superseded(api: Any, pod: Any, clock: Any) -> None:
    api.always = 403
    beats = pod.with_lease(60).heartbeats(clock)
    beats.beat(1)
    clock.seconds += 59
    beats.flush(timeout=10)
    assert beats.cancelled() is None
    clock.seconds += 1
    beats.flush(timeout=10)
    with pytest.raises(SupersededError):
        beats.beat(1)


def test_a_repeatedly_rejected_token_means_superseded(api: Any, pod: Any, clock: Any) -> None:
    api.always = 401
    beats = pod.with_lease().heartbeats(clock)
    beats.beat(1)
    for _ in range(4):
        assert beats.cancelled() is None
        beats.flush(timeout=10)
    with pytest.raises(SupersededError):
        beats.beat(1)


def test_too_large_details_are_rejected_before_sending(api: Any, pod: Any) -> None:
    beats = pod.with_lease().heartbeats()
    beats.beat("x" * (16 * 1024 - 2))
    with pytest.raises(PayloadTooLargeError, match="16385 bytes exceed the limit of 16384"):
        beats.beat("x" * (16 * 1024 - 1))
    assert len(api.requests) == 1


def test_details_too_large_for_the_api_server_are_an_error(api: Any, pod: Any) -> None:
    api.always = 413
    with pytest.raises(PayloadTooLargeError, match="refused with 413"):
        pod.with_lease().heartbeats().beat(1)


@pytest.mark.parametrize(
    ("bad", "want"),
    [
        pytest.param(2**63, ValueError, id="an integer that would lose digits"),
        pytest.param(float("nan"), ValueError, id="NaN"),
        pytest.param("\ud800", ValueError, id="half a surrogate pair"),
        pytest.param({"when": object()}, TypeError, id="something that is no JSON"),
    ],
)
def test_details_that_are_not_json_are_rejected(pod: Any, bad: Any, want: type[Exception]) -> None:
    with pytest.raises(want):
        pod.with_lease().heartbeats().beat(bad)


def test_a_pod_without_a_lease_sends_no_heartbeats(pod: Any) -> None:
    assert pod.context().heartbeats is None


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes its certificate with openssl")
def test_the_certificate_of_the_api_server_is_verified(tls_api: Any, pod: Any, clock: Any) -> None:
    pod.environ |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(tls_api.port)}
    del pod.environ["PERDURE_API_SERVER"]
    beats = pod.with_lease().heartbeats(clock)
    beats.beat(1)
    assert tls_api.annotations == {DETAILS: "1"}, "the first one is sent immediately"
    clock.seconds += 60
    beats.beat(2)
    assert tls_api.annotations == {DETAILS: "2"}

    pod.environ["KUBERNETES_SERVICE_HOST"] = "localhost"  # the certificate is for 127.0.0.1 only
    other = pod.heartbeats(clock)
    other.beat(3)
    assert tls_api.annotations == {DETAILS: "2"}


def test_a_signal_handler_can_check_for_cancellation_at_any_time(pod: Any, clock: Any) -> None:
    """A handler can run between any two instructions of the heartbeat thread, even while it holds the lock."""
    beats = pod.with_lease(3600).heartbeats(clock)
    before = signal.signal(signal.SIGVTALRM, lambda *_: beats.cancelled())
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0001, 0.0001)
    try:
        for _ in range(50_000):
            beats.raise_if_stopped()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
