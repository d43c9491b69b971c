"""Levels of log messages of libraries."""

import logging

import pytest

from perdure.observe.json_logs import RetryFilter


@pytest.mark.parametrize(
    ("name", "message", "level"),
    [
        ("kopf._cogs.clients.api", "Request attempt #1/8 failed; will retry: … storage is (re)initializing", "WARNING"),
        ("kopf._cogs.clients.api", "Request attempt #8/8 failed; escalating: …", "ERROR"),
        ("perdure.informers", "will retry", "ERROR"),
    ],
)
def test_errors_that_kopf_retries_are_warnings(name: str, message: str, level: str) -> None:
    record = logging.LogRecord(name, logging.ERROR, "", 0, message, None, None)
    assert RetryFilter().filter(record)
    assert record.levelname == level
    assert record.levelno == getattr(logging, level)
