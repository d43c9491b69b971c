"""The examples of Tekton Pipelines have the same outcome here as on Tekton's own controller.

The same outcome means: the same tasks run, equally often and with the same parameters, and the run ends as it does there, with
the same results. Their outcome on Tekton is recorded with the examples, so that only recording needs its controller:

    pytest tests/fidelity/tekton/test_examples.py --record

plays again what has changed in `examples.py`; remove `examples.jsonl` to play all of them.
"""

import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from cluster import gobuild
from fidelity.argo.observed import Observed, differences
from fidelity.tekton.controller import TektonPlayer, tekton
from fidelity.tekton.differences import DIFFERENT, NOT_IMPORTED
from fidelity.tekton.examples import NOT_PLAYED, Example, ExampleCase, cases, read, runs
from fidelity.tekton.observed import on_perdure, on_tekton
from fidelity.tekton.recorded import load, save

_PAGE = Path(__file__).parents[3] / "docs" / "from-tekton.md"


@cache
def _recorded() -> tuple[list[Example], Mapping[str, Observed]]:
    return load()


@cache
def _cases() -> Mapping[str, list[ExampleCase]]:
    found: dict[str, list[ExampleCase]] = {}
    for each in cases(_recorded()[0]):
        found.setdefault(each.example.name, []).append(each)
    return found


@pytest.mark.parametrize("name", sorted(_cases()))
def test_an_example_has_the_outcome_of_tekton(tmp_path: Path, name: str) -> None:
    records = _recorded()[1]
    found = []
    for case in _cases()[name]:
        imported = on_perdure(case, tmp_path)
        assert not imported.remarks
        found += [f"{case.name}: {each}" for each in differences(records[case.name], imported.observed, of="Tekton")]
    assert bool(found) == (name in DIFFERENT), found


@pytest.mark.parametrize("name", sorted(NOT_IMPORTED))
def test_parts_of_an_example_are_not_converted(tmp_path: Path, name: str) -> None:
    (example,) = (each for each in _recorded()[0] if each.name == name)
    assert any(on_perdure(case, tmp_path).remarks for case in runs(example))


def test_the_documentation_says_how_many_examples_are_compared() -> None:
    """And why the others are not, or differ."""
    page = _PAGE.read_text(encoding="utf-8")
    assert _recorded()[1].keys() == {case.name for of in _cases().values() for case in of}
    names = _cases().keys()
    assert f"{len(names - DIFFERENT)} of the {len(names)} examples" in page
    for each in (*NOT_PLAYED, *DIFFERENT):
        assert f"`{Path(each).stem}`" in page, each


@pytest.mark.bench
@pytest.mark.timeout(3600)  # the first build of the controller takes long
@pytest.mark.skipif(shutil.which("go") is None, reason="Tekton's controller is built with Go")
def test_the_records_are_current(record: bool) -> None:
    examples = read(gobuild.module_folder(gobuild.TEKTON) / "examples" / "v1")
    known = _recorded()[1]
    played = [case for case in cases(examples) if not record or case.name not in known]
    with tekton() as api:
        seen = {case.name: on_tekton(case, each) for case, each in TektonPlayer[ExampleCase](api).play(played)}
    if record:
        save(examples, {**known, **seen})
    else:
        assert {name: each.as_json() for name, each in seen.items()} == {name: known[name].as_json() for name in seen}
