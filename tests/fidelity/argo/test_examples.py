"""The examples of Argo Workflows have the same outcome here as on Argo's own controller.

The same outcome means: the same templates run, equally often and with the same input, and the workflow ends as it does there,
with the same outputs. Their outcome on Argo is recorded with the examples, so that only recording needs its controller:

    pytest tests/fidelity/argo/test_examples.py --record

plays again what has changed in `examples.py`; remove `examples.jsonl` to play all of them.
"""

import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from cluster import gobuild
from fidelity.argo.controller import ArgoPlayer, argo, create
from fidelity.argo.differences import NOT_IMPORTED
from fidelity.argo.examples import NOT_PLAYED, Example, ExampleCase, cases, objects, read
from fidelity.argo.observed import Observed, differences, on_argo, on_perdure
from fidelity.argo.recorded import load_examples, save_examples
from perdure.importing.argo.manifests import KINDS, convert

_PAGE = Path(__file__).parents[3] / "docs" / "from-argo.md"


@cache
def _recorded() -> tuple[list[Example], Mapping[str, Observed]]:
    return load_examples()


@cache
def _cases() -> Mapping[str, list[ExampleCase]]:
    found: dict[str, list[ExampleCase]] = {}
    for each in cases(_recorded()[0]):
        found.setdefault(each.example.name, []).append(each)
    return found


@pytest.mark.parametrize("name", sorted(_cases()))
def test_an_example_has_the_outcome_of_argo(tmp_path: Path, name: str) -> None:
    records = _recorded()[1]
    gaps, found = [], []
    for case in _cases()[name]:
        imported = on_perdure(case, tmp_path, documents=case.imported, scenario=case.scenario)
        gaps += [each for each in imported.remarks if not each.startswith("Note: ")]
        found += [f"{case.name}: {each}" for each in differences(records[case.name], imported.observed)]
    assert bool(gaps) == (name in NOT_IMPORTED), gaps
    assert not found or gaps, found


def test_the_documentation_says_how_many_examples_are_compared() -> None:
    """And why the others are not; at least 90 % are converted, and 97 % of those have the same outcome."""
    page = _PAGE.read_text(encoding="utf-8")
    examples = _recorded()[0]
    assert _recorded()[1].keys() == {case.name for of in _cases().values() for case in of}
    read_ = {each.name for each in examples if any(one.get("kind") in KINDS for one in each.documents)}
    shared = objects(examples)
    left = {
        each.name: convert([*each.documents, *shared])[: len(each.documents)]
        for each in examples
        if each.name in NOT_PLAYED
    }
    lost = NOT_IMPORTED | {name for name, made in left.items() if any(of.report.gaps for of in made)}
    converted, same = len(read_ - lost), len(_cases().keys() - NOT_IMPORTED)
    shares = f"{100 * converted / len(read_):.1f} %", f"{100 * same / converted:.1f} %"
    print(
        f"{len(read_)} examples, {converted} converted ({shares[0]}), {same} of them with the outcome of Argo ({shares[1]})"
    )
    assert (
        f"Argo 4.0.5 has {len(read_)} files with kinds that the command reads. {converted} of them ({shares[0]})"
        in page
    )
    assert f"{same} of the {converted} converted examples ({shares[1]}) have the same outcome as on Argo" in page
    assert converted >= 0.9 * len(read_)
    assert same >= 0.97 * converted
    for each in (*NOT_IMPORTED, *NOT_PLAYED):
        assert f"`{each.removesuffix('.yaml')}`" in page, each


@pytest.mark.bench
@pytest.mark.timeout(3600)  # the first build of the controller takes long
@pytest.mark.skipif(shutil.which("go") is None, reason="Argo's controller is built with Go")
def test_the_records_are_current(record: bool) -> None:
    examples = read(gobuild.module_folder(gobuild.ARGO) / "examples")
    known = _recorded()[1]
    played = [case for case in cases(examples) if not record or case.name not in known]
    with argo() as api:
        for each in objects(examples):
            create(api, each)
        found = {case.name: each for case, each in ArgoPlayer[ExampleCase](api).play(played)}
    late = {name for name, each in found.items() if each.late}
    seen = {name: on_argo(each) for name, each in found.items() if name not in late}
    if record:
        save_examples(examples, {**known, **seen})
        assert not late, f"this machine was too slow for the deadlines of {sorted(late)}; record again"
    else:
        assert {name: each.as_json() for name, each in seen.items()} == {name: known[name].as_json() for name in seen}
