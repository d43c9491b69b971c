"""Perdure responds as Temporal's server does, field by field.

`recorded/` has the responses of Temporal's server for each scenario, `differences.py` the intended differences, `open.txt`
the fields to fix. A field that is in neither must not differ. With ``--record``, `open.txt` is written again,
and `requests.json`, which `test_inventory.py` reads.
"""

import json
from collections.abc import Iterator

import pytest

from fidelity.differences import LIST, OPEN, is_explained
from fidelity.recording import NAMES, REQUESTS, differences, play, prepare, recorded
from support.operator import in_memory
from support.sdk.server import serving
from support.temporal import Server

_CLUSTER = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.bench]


@pytest.fixture(scope="module", params=["memory", pytest.param("cluster", marks=_CLUSTER)])
def perdure(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Perdure over an API server in memory, and over a real one."""
    if request.param == "memory":
        with in_memory() as server:
            prepare(server)
            yield server
        return
    with serving(request.getfixturevalue("cluster"), tmp_path_factory.mktemp("operator") / "log") as operator:
        server = Server(operator.address, operator.namespace, operator.authority)
        prepare(server)
        yield server


@pytest.fixture(scope="module")
def still_open(record: bool) -> Iterator[set[str]]:
    """Collects the fields that differ."""
    found: set[str] = set()
    yield found
    if record:
        LIST.write_text("".join(f"{field}\n" for field in sorted(found)))


@pytest.fixture(scope="module")
def requests(record: bool) -> Iterator[dict[str, list[str]]]:
    """The fields that the requests of each scenario set; collects them with ``--record``."""
    known: dict[str, list[str]] = {} if record else json.loads(REQUESTS.read_text())
    yield known
    if record:
        REQUESTS.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n")


@pytest.mark.parametrize("name", NAMES)
def test_responses_are_those_of_a_temporal_server(
    perdure: Server, still_open: set[str], requests: dict[str, list[str]], record: bool, name: str
) -> None:
    session = play(name, perdure)
    if record:
        requests[name] = sorted(session.fields)
    assert requests[name] == sorted(session.fields)
    found = [one for one in differences(name, recorded(name), session.steps) if not is_explained(one.field)]
    still_open.update(one.field for one in found)
    new = [] if record else [one for one in found if one.field not in OPEN]
    assert not new, "\n".join(f"{one.field}  in  {one}" for one in new)
