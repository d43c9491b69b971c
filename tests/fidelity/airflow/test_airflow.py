"""Imported DAGs of Airflow go as they do on Airflow's own scheduling code: the same tasks run, and the run ends in the same way.

The DAGs are random, with trigger rules and failures. How they went on Airflow is recorded, with the DAG as Airflow serializes it,
so that only recording needs Airflow, which is installed by uv:

    pytest -m bench tests/fidelity/airflow --record
"""

import json
import os
import shutil
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from fidelity.airflow.dags import Json, random_dag
from perdure.cli.files.conversion import convert_files
from perdure.cli.files.documents import read_documents
from perdure.importing.airflow import manifests as airflow
from perdure.simulation.manifests import Manifest, read_definitions, read_scenario
from perdure.simulation.report import Report
from perdure.simulation.scenario import ScriptedAttempt
from perdure.simulation.script import ScriptedEntries
from perdure.simulation.simulator import Simulator

SEEDS: Final = range(150)
_FILE: Final = Path(__file__).with_name("recorded.jsonl")
_PACKAGES: Final = ("apache-airflow==3.3.2", "apache-airflow-providers-cncf-kubernetes==10.25.0")
_RAN: Final = frozenset({"success", "failed"})
_NO_COUNTERPART: Final = "may be skipped; write the condition as `when`"
"""What is reported for DAGs in which Argo's statuses do not tell a task that was skipped from one that a failure prevents."""


@cache
def records() -> dict[int, Json]:
    lines = _FILE.read_text(encoding="utf-8").splitlines() if _FILE.exists() else []
    return {each["seed"]: each for each in map(json.loads, lines)}


@dataclass
class _Script(ScriptedEntries[ScriptedAttempt]):
    """The ends of the tasks of a case, and which ran."""

    failing: list[str]
    ran: list[str] = field(default_factory=list)

    def next(self, name: str, value: Any) -> ScriptedAttempt:
        """Return how the attempt of a task ends."""
        del value
        self.ran.append(name)
        return ScriptedAttempt(exit_code=1) if name in self.failing else ScriptedAttempt(output=None)


def imported(folder: Path, record: Json) -> tuple[tuple[str, ...], str]:
    """Import a DAG; return what is reported, and the manifests."""
    source = folder / f"{record['seed']}.json"
    source.write_text(json.dumps(record["dag"]), encoding="utf-8")
    made = convert_files([str(source)], airflow.KINDS, airflow.convert, accepts=airflow.is_dag)
    return tuple(each for each in made.sentences if not each.startswith("Note: ")), made.text


@pytest.mark.parametrize("seed", SEEDS)
def test_an_imported_dag_goes_as_on_airflow(tmp_path: Path, seed: int) -> None:
    record, case = records()[seed], random_dag(seed)
    gaps, text = imported(tmp_path, record)
    if gaps:
        assert all(_NO_COUNTERPART in each for each in gaps), gaps
        return
    file = tmp_path / "imported.yaml"
    file.write_text(text, encoding="utf-8")
    manifests = [Manifest(str(file), data) for data in read_documents(str(file)) if data["kind"] == "Workflow"]
    told = read_scenario({}, "the scenario")
    script = _Script(case["failing"])
    world = Simulator(read_definitions(manifests, told, "the scenario"), told, script)
    world.run()
    report = Report(world)
    assert sorted(script.ran) == sorted(name for name, state in record["states"].items() if state in _RAN)
    assert (report.phase == "Completed") == (record["state"] == "success")


def test_the_records_have_all_that_matters(tmp_path: Path) -> None:
    found = records()
    assert found.keys() == set(SEEDS)
    compared = [each for each in found.values() if not imported(tmp_path, each)[0]]
    print(f"{len(compared)} of {len(found)} DAGs are compared")
    assert len(compared) >= 100
    states = Counter(state for each in compared for state in each["states"].values())
    assert min(states[each] for each in ("success", "failed", "skipped", "upstream_failed")) > 10, states
    assert min(Counter(each["state"] for each in compared).values()) > 20


@pytest.mark.bench
@pytest.mark.timeout(3600)  # Airflow is installed, and each DAG takes seconds
@pytest.mark.skipif(shutil.which("uv") is None, reason="uv installs Airflow")
def test_the_records_are_current(tmp_path: Path, record: bool) -> None:
    seeds = SEEDS if record else SEEDS[:10]
    cases, written = tmp_path / "cases.jsonl", tmp_path / "records.jsonl"
    cases.write_text("".join(f"{json.dumps(random_dag(seed))}\n" for seed in seeds), encoding="utf-8")
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path / "home"), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    run = ["uv", "run", "--no-project", "--python", "3.11", *(word for each in _PACKAGES for word in ("--with", each))]
    subprocess.run([*run, "airflow", "db", "migrate"], env=environment, check=True, capture_output=True)
    player = Path(__file__).with_name("player.py")
    subprocess.run(
        [*run, "python", str(player), str(cases), str(written)], env=environment, check=True, capture_output=True
    )
    played = [json.loads(line) for line in written.read_text(encoding="utf-8").splitlines()]
    if record:
        _FILE.write_text("".join(f"{json.dumps(_short(each))}\n" for each in played), encoding="utf-8")
        records.cache_clear()
    for each in played:
        known = records()[each["seed"]]
        assert (each["state"], each["states"]) == (known["state"], known["states"])


def _short(record: Json) -> Json:
    """Return a record without what is the same for all tasks, or depends on the machine."""
    for each in record["dag"]["dag"]["tasks"]:
        for name in ("template_fields", "template_fields_renderers"):
            each["__var"].pop(name)
    for name in ("fileloc", "_processor_dags_folder", "task_group"):
        record["dag"]["dag"].pop(name, None)
    return record
