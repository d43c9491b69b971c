"""Runs that are only in the archive, in Temporal's Web UI. Its database is a real one."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from browser.reading import RUNS, matching, opened, see, status
from browser.stand import Stand, stand
from perdure.postgres.archive import Connection, PostgresArchive
from rpc.archive.archiving import in_cluster, run, until
from support.postgres import postgres

pytestmark = [pytest.mark.bench, pytest.mark.timeout(900)]

NAMES = ("archived-1", "archived-2", "archived-3")
FAILS = {"steps": [{"name": "broken", "fail": {"type": "OutOfStock", "message": "no lamps are left"}}]}


@pytest.fixture(scope="module")
def ui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """The Web UI over an operator that has archived three runs, of which the last one has failed."""
    specs: tuple[dict[str, Any], ...] = ({}, {}, {"inline": FAILS})
    runs = [run(name, ttl=1, spec=spec) for name, spec in zip(NAMES, specs, strict=True)]
    with (
        postgres() as database,
        stand(
            tmp_path_factory.mktemp("archive"),
            runs=runs,
            archive=lambda: PostgresArchive(Connection(conninfo=database.conninfo), timedelta(0)).run(),
        ) as found,
    ):
        until(lambda: not in_cluster(found.server))
        yield found


def test_the_list_has_archived_runs(page: Any) -> None:
    page.goto(RUNS)
    for name in NAMES:
        page.get_by_role("link", name=name).first.wait_for()
    matching(page, "ExecutionStatus = 'Failed'")
    page.get_by_role("link", name=NAMES[2]).first.wait_for()
    assert page.get_by_role("link", name=NAMES[0]).count() == 0


def test_an_archived_run_has_its_history_and_its_result(page: Any) -> None:
    main = opened(page, NAMES[0], "Event History")
    status(page, "Completed")
    see(main, re.compile("Workflow Execution Completed"))
    main = opened(page, NAMES[2], "Event History")
    status(page, "Failed")
    see(main, re.compile("no lamps are left"))


def test_an_archived_run_has_no_actions_that_need_an_open_one(page: Any) -> None:
    opened(page, NAMES[0])
    status(page, "Completed")
    assert page.get_by_role("button", name="Request Cancellation").filter(visible=True).count() == 0
