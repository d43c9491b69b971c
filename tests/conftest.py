"""Fixtures that all tests share: a real cluster, and a separate namespace in it."""

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

# Before they are imported, so that their assertions show the compared values.
pytest.register_assert_rewrite("support.cluster", "support.engine", "support.doctor")

from support.cluster.namespace import Cluster, find_cluster, temporary_namespace  # noqa: E402
from support.cluster.process import Process, operator  # noqa: E402

# Timing never decides a test. Random examples do so only in `make test-all`, which sets how many more it tries.
settings.register_profile("perdure", deadline=None, derandomize="PERDURE_LONGER" not in os.environ)
settings.load_profile("perdure")
# By itself, structlog draws each traceback with the variables of each frame: that takes many times as long as the test.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record", action="store_true", help="record the golden histories again; see tests/golden/README.md"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Freeze collected items: they live until the end, and the garbage collector need not scan them in each test."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # at the end, extension modules report leaked objects


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """If only tests on a cluster run, do not import files without such tests: all files take each process ten seconds."""
    only = config.option.markexpr.startswith("cluster") and collection_path.match("test_*.py")
    return True if only and not _mentions_cluster(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    hidden = [path for path in {item.path for item in items if _needs_cluster(item)} if not _mentions_cluster(path)]
    if hidden:
        raise pytest.UsageError(
            f"{hidden} must mark tests with `pytest.mark.cluster`, literally, or they are not found"
        )
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)  # one that starts last is waited for


def _needs_cluster(item: pytest.Item) -> bool:
    return item.get_closest_marker("cluster") is not None


def _mentions_cluster(file: Path) -> bool:
    return "pytest.mark.cluster" in file.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def record(request: pytest.FixtureRequest) -> bool:
    """Whether golden histories are recorded again."""
    return bool(request.config.getoption("--record"))


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """A real cluster. A missing one is a failure: skipping would hide that nothing was tested."""
    try:
        return find_cluster()
    except LookupError as error:
        pytest.fail(str(error))


@pytest.fixture
def namespace(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[Cluster]:
    """A namespace for one test. The deployed operator serves it, unless the test is marked ``own``."""
    excluded = request.node.get_closest_marker("own") is not None
    with temporary_namespace(cluster, excluded=excluded) as made:
        yield made


@pytest.fixture
def operator_process(namespace: Cluster, tmp_path: Path) -> Iterator[Process]:
    """The operator of a test that is marked ``own``."""
    with operator(namespace, tmp_path / "operator.log") as running:
        yield running


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the results of benchmarks at the end, even if all tests passed."""
    for report in terminalreporter.stats.get("passed", []):
        if report.when == "call" and "bench" in report.keywords and report.capstdout.strip():
            terminalreporter.section(report.nodeid, sep="-")
            terminalreporter.write_line(report.capstdout.strip())
