"""The time in responses of the API server."""

from datetime import UTC, datetime

import pytest

from perdure.kube.clock import read_http_time


def test_the_time_of_a_response_is_in_utc() -> None:
    assert read_http_time("Fri, 01 Jan 2027 00:00:05 GMT") == datetime(2027, 1, 1, 0, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    "header", ["", "soon", "Fri, 99 Jan 2027 00:00:00 GMT", "Fri, 01 Jan 99999999999999 00:00:00 GMT"]
)
def test_a_header_without_a_valid_time_counts_as_missing(header: str) -> None:
    assert read_http_time(header) is None
