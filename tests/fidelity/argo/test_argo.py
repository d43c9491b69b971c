"""Imported workflows of Argo go as they do on Argo's own controller: the same tasks run, with the same input, to the same end.

The workflows are random. Their outcome on Argo is recorded, so that only recording needs its controller:

    pytest tests/fidelity/argo --record

plays again what has changed in `workflows.py`; remove lines of `recorded.jsonl` to play them, too.
"""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from fidelity.argo.controller import ArgoPlayer, argo
from fidelity.argo.differences import KNOWN, known
from fidelity.argo.observed import differences, on_argo, on_perdure
from fidelity.argo.recorded import SEEDS, load, save
from fidelity.argo.workflows import RandomCase, random_case

_BATCH = 20
_SAMPLE = 40
"""How many workflows are played again to see whether the records are current."""


@pytest.mark.parametrize("first", SEEDS[::_BATCH])
def test_imported_workflows_go_as_on_argo(tmp_path: Path, first: int) -> None:
    records = load()
    found = {}
    for seed in SEEDS[first : first + _BATCH]:
        recorded, case = records[seed], random_case(seed)
        if known(case, recorded) is None:
            imported = on_perdure(case, tmp_path)
            assert not imported.remarks, (seed, imported.remarks)
            found[seed] = list(differences(recorded, imported.observed))
    assert not any(found.values()), {seed: each for seed, each in found.items() if each}


def test_nearly_all_workflows_are_compared() -> None:
    """And they fail, repeat attempts, and skip tasks."""
    records = load()
    assert records.keys() == set(SEEDS)
    skipped = Counter(found.name for seed, each in records.items() if (found := known(random_case(seed), each)))
    compared = len(SEEDS) - sum(skipped.values())
    print(f"{len(SEEDS)} workflows, {compared} compared; known differences: {dict(skipped)}")
    assert compared >= 500
    assert compared >= 0.96 * len(SEEDS), skipped
    phases = Counter(each.phase for each in records.values())
    assert min(phases["Succeeded"], phases["Failed"]) > 100
    attempts = [(name, tuple(of.items())) for each in records.values() for name, of in each.attempts]
    assert len(attempts) > 3_000
    values = " ".join(each.get("v", "") for observed in records.values() for _, each in observed.attempts)
    assert all(status in values for status in ("Succeeded", "Failed", "Error", "Skipped", "Omitted"))


def test_known_differences_are_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "from-argo.md").read_text(encoding="utf-8")
    assert all(each.name in page for each in KNOWN)


@pytest.mark.bench
@pytest.mark.timeout(3600)  # the first build of the controller takes long
@pytest.mark.skipif(shutil.which("go") is None, reason="Argo's controller is built with Go")
def test_the_records_are_current(record: bool) -> None:
    records = load()
    seeds = [seed for seed in SEEDS if seed not in records] if record else list(SEEDS[:_SAMPLE])
    with argo() as api:
        found = {
            case.seed: each for case, each in ArgoPlayer[RandomCase](api).play([random_case(seed) for seed in seeds])
        }
    late = {seed for seed, each in found.items() if each.late}
    played = {seed: on_argo(each) for seed, each in found.items() if seed not in late}
    if record:
        save({**records, **played})
        assert not late, f"this machine was too slow for the deadlines of {sorted(late)}; record again"
    else:
        assert {seed: each.as_json() for seed, each in played.items()} == {
            seed: records[seed].as_json() for seed in played
        }
