"""The recorded responses of Temporal's server are current.

    pytest tests/fidelity/test_recorded.py --record

records it again.
"""

import shutil
from collections.abc import Iterator

import pytest

from fidelity.recording import NAMES, path_of, play, prepare, text_of
from support.temporal import Server
from support.temporal_server import SWITCHED_ON, temporal_server

pytestmark = [
    pytest.mark.bench,
    pytest.mark.timeout(3600),  # the first build of the server takes long
    pytest.mark.skipif(shutil.which("go") is None, reason="Temporal's server is built with Go"),
]


@pytest.fixture(scope="module")
def temporal() -> Iterator[Server]:
    with temporal_server(*SWITCHED_ON) as server:
        prepare(server)
        yield server


@pytest.mark.parametrize("name", NAMES)
def test_recorded_responses_are_current(temporal: Server, record: bool, name: str) -> None:
    answered = text_of(play(name, temporal).steps)
    if record:
        path_of(name).write_text(answered)
    assert answered == path_of(name).read_text()
