"""Five pipelines in Perdure and in six other tools do the same, and docs/python-compared.md says how long they are.

The other tools are installed by uv. `recorded.json` has what was seen with them:

    pytest -m bench tests/fidelity/pipelines --record
"""

import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import perdure.flow as pf
from fidelity.pipelines.comparison import (
    HERE,
    MISTAKES,
    PACKAGES,
    PIPELINES,
    TOOLS,
    count_lines,
    plant,
    programs,
)
from support.manuals import REPOSITORY

SHARED: Final = HERE / "shared"
RECORDED: Final = HERE / "recorded.json"
PAGE: Final = REPOSITORY / "docs" / "python-compared.md"
CHECKERS: Final = ("mypy==2.4.1", "basedpyright==1.40.2")
needs_uv = pytest.mark.skipif(shutil.which("uv") is None, reason="uv installs the other tools")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with a line for each call of the work."""
    file = tmp_path / "calls"
    file.touch()
    monkeypatch.setenv("WORK_LOG", str(file))
    return file


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Imports a pipeline of Perdure."""
    monkeypatch.syspath_prepend(str(SHARED))

    def imported(pipeline: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"{pipeline}_in_perdure", HERE / "perdure" / f"{pipeline}.py")
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    yield imported
    sys.modules.pop("work", None)


def test_nightly(load: Callable[[str], ModuleType], log: Path) -> None:
    module, run = load("nightly"), pf.LocalRun()
    run.lose(module.extract)
    assert run.run(module.nightly, ["eu", "us", "asia"], date(2026, 11, 27)) == 122
    assert sorted(log.read_text().splitlines()) == [
        "extract asia 2026-11-27",
        "extract eu 2026-11-27",
        "extract us 2026-11-27",
        "load",
    ]


def test_sweep(load: Callable[[str], ModuleType]) -> None:
    best = load("sweep").sweep.run_local([0.01, 0.1, 1.0, 5.0])
    assert (best.rate, best.epochs) == (1.0, 4)


@pytest.mark.parametrize(("answer", "result"), [(True, "published"), (False, "withdrawn"), (None, "withdrawn")])
def test_approval(load: Callable[[str], ModuleType], answer: bool | None, result: str) -> None:
    module, run = load("approval"), pf.LocalRun()
    if answer is not None:
        run.send_signal("approve", answer, after="2h")
    assert run.run(module.release, "v7") == f"{result} image:v7"


def test_files(load: Callable[[str], ModuleType], log: Path) -> None:
    report = load("files").words.run_local("in")
    assert (report.words, report.unreadable) == (24, ["in/broken.txt"])
    assert log.read_text().count("broken") == 1, "what cannot be read is not read again"


def test_trip(load: Callable[[str], ModuleType], log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("trip")
    assert module.plan.run_local("rome") == ["flight-of-rome", "hotel-of-rome", "car-of-rome"]
    log.write_text("")
    monkeypatch.setenv("WORK_FAILS", "book car")
    with pytest.raises(Exception, match="Activity task failed"):
        module.plan.run_local("oslo")
    assert log.read_text().splitlines()[-3:] == ["book car", "cancel hotel-of-oslo", "cancel flight-of-oslo"]


def row(page: str, title: str) -> list[str]:
    """The cells of the row of a table that begins with a title."""
    found = re.search(rf"^\| {re.escape(title)} \| (.*) \|$", page, re.MULTILINE)
    assert found, f"no row {title!r}"
    return [each.strip() for each in found[1].split("|")]


def test_the_page_has_the_numbers_of_lines() -> None:
    page = PAGE.read_text(encoding="utf-8").partition("## Lines")[2]
    lines = {pipeline: [sum(map(count_lines, programs(tool, pipeline))) for tool in TOOLS] for pipeline in PIPELINES}
    for pipeline, numbers in lines.items():
        assert [int(re.sub(r"\D.*", "", each)) for each in row(page, f"`{pipeline}`")] == numbers
    assert row(page, "all five") == [str(sum(column)) for column in zip(*lines.values(), strict=True)]


def test_the_page_has_what_checkers_have_found() -> None:
    page, recorded = PAGE.read_text(encoding="utf-8"), json.loads(RECORDED.read_text(encoding="utf-8"))
    for number, mistake in enumerate(MISTAKES):
        assert row(page, mistake) == [" and ".join(recorded["typed"][tool][number]) or "none" for tool in TOOLS]


def run(tool: str, folder: Path, *command: str, **environment: str) -> subprocess.Popen[str]:
    """Start a command where a tool is installed, in a session of its own."""
    packages = [word for each in (*PACKAGES.get(tool, ()), *CHECKERS) for word in ("--with", each)]
    uv = ["uv", "run", "--quiet", "--no-project", "--python", "3.11", *packages, *command]
    home = {
        name: str(folder / name) for name in ("HOME", "AIRFLOW_HOME", "DAGSTER_HOME", "METAFLOW_HOME", "PREFECT_HOME")
    }
    for each in home.values():
        Path(each).mkdir(exist_ok=True)
    (folder / "DAGSTER_HOME" / "dagster.yaml").touch()
    settings = {
        **os.environ,
        **home,
        "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache" / "uv")),
        "PYTHONPATH": os.pathsep.join([str(SHARED), str(HERE / tool)]),
        "USER": "tests",
        "WORK_LOG": str(folder / "calls"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(HERE / "airflow"),
        "METAFLOW_DATASTORE_SYSROOT_LOCAL": str(folder),
        **environment,
    }
    return subprocess.Popen(
        uv, cwd=folder, env=settings, start_new_session=True, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def output(process: subprocess.Popen[str], answer: str = "") -> str:
    with process:
        text, _ = process.communicate(answer, timeout=600)
    assert process.returncode == 0, text
    return text


EXPECTED: Final[dict[str, Any]] = {
    "nightly": 122,
    "sweep": {"rate": 1.0, "epochs": 4, "score": 0.9375},
    "approval": "published image:v7",
    "files": {"words": 24, "unreadable": ["in/broken.txt"]},
}


@needs_uv
@pytest.mark.bench
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("tool", [each for each in PACKAGES if each != "hera"])
def test_the_other_tools_do_the_same(tool: str, tmp_path: Path) -> None:
    if tool == "airflow":
        output(run(tool, tmp_path, "airflow", "db", "migrate"))
    shown = output(run(tool, tmp_path, "python", str(HERE / tool / "play.py")), "y\n")
    played = json.loads(shown[shown.rindex('{"nightly"') :])
    assert {name: played[name] for name in EXPECTED if name in played} == {
        name: value for name, value in EXPECTED.items() if name in played
    }
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls.index("cancel hotel-of-oslo") < calls.index("cancel flight-of-oslo")


@needs_uv
@pytest.mark.bench
@pytest.mark.timeout(600)
@pytest.mark.parametrize("pipeline", PIPELINES)
def test_manifests_of_hera_are_imported(pipeline: str, tmp_path: Path) -> None:
    file = tmp_path / "argo.yaml"
    file.write_text(output(run("hera", tmp_path, "python", str(HERE / "hera" / f"{pipeline}.py"))))
    done = subprocess.run(
        [sys.executable, "-m", "perdure.cli.app", "import", "argo", str(file)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "operator")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def errors(tool: str, folder: Path) -> dict[str, Counter[str]]:
    """How many errors each type checker reports for each program in a folder."""
    paths = [str(SHARED), *([str(REPOSITORY / "operator")] if tool == "perdure" else [])]
    python = sys.executable if tool == "perdure" else None
    settings = {"typeCheckingMode": "basic", "include": [str(folder)], "extraPaths": paths}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    mypy = ["mypy", "--no-incremental", *([f"--python-executable={python}"] if python else [])]
    pyright = ["basedpyright", "--outputjson", f"--project={folder}", *([f"--pythonpath={python}"] if python else [])]
    programs = sorted(folder.glob("*_?.py"))
    with run(tool, folder, *mypy, *map(str, programs), MYPYPATH=os.pathsep.join(paths)) as process:
        found, _ = process.communicate(timeout=600)
    with run(tool, folder, *pyright) as process:
        told, _ = process.communicate(timeout=600)
    return {
        "mypy": Counter(Path(line.partition(":")[0]).name for line in found.splitlines() if ": error:" in line),
        "pyright": Counter(
            Path(each["file"]).name for each in json.loads(told)["generalDiagnostics"] if each["severity"] == "error"
        ),
    }


@needs_uv
@pytest.mark.bench
@pytest.mark.timeout(3600)
def test_what_is_typed(tmp_path: Path, record: bool) -> None:
    typed: dict[str, list[list[str]]] = {}
    for tool in TOOLS:
        folder = tmp_path / tool
        folder.mkdir()
        pairs = plant(folder, tool)
        found = errors(tool, folder)
        typed[tool] = [
            [checker for checker, counts in found.items() if counts[wrong.name] > counts[right.name]]
            for right, wrong in pairs
        ]
    compare("typed", typed, record)


KILLED: Final[dict[str, tuple[Sequence[str], Sequence[str]]]] = {
    "prefect": (("python", str(HERE / "prefect" / "start.py")),) * 2,
    "flyte": (("python", str(HERE / "flyte" / "start.py")),) * 2,
    "dagster": (
        ("python", str(HERE / "dagster" / "start.py")),
        ("python", str(HERE / "dagster" / "start.py"), "again"),
    ),
    "metaflow": (
        ("python", str(HERE / "metaflow" / "nightly.py"), "run", "--day", "2026-11-27"),
        ("python", str(HERE / "metaflow" / "nightly.py"), "resume"),
    ),
}
"""How to start `nightly` with each tool, and how to start it again after its processes were killed."""


@needs_uv
@pytest.mark.bench
@pytest.mark.timeout(1800)
def test_what_runs_again_after_all_processes_were_killed(tmp_path: Path, record: bool) -> None:
    again: dict[str, list[str]] = {}
    for tool, (start, start_again) in KILLED.items():
        folder = tmp_path / tool
        folder.mkdir()
        calls = folder / "calls"
        with run(tool, folder, *start, WORK_HANGS="load") as process:
            deadline = time.monotonic() + 300
            while "load" not in (calls.read_text() if calls.exists() else ""):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.2)
            os.killpg(process.pid, signal.SIGKILL)
        calls.unlink()
        output(run(tool, folder, *start_again))
        again[tool] = sorted(calls.read_text().splitlines())
    compare("killed", again, record)


def compare(name: str, found: Any, record: bool) -> None:
    """Compare what was found with what is recorded, or record it."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.exists() else {}
    if record:
        RECORDED.write_text(json.dumps({**recorded, name: found}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    else:
        assert found == recorded[name]
