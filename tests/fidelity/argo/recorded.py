"""The recorded runs on Argo's controller: a line of JSON for each seed, and one for each example with its documents and runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from fidelity.argo.examples import Example, ExampleCase, cases
from fidelity.argo.observed import Observed, digest
from fidelity.argo.workflows import random_case

_FILE: Final = Path(__file__).with_name("recorded.jsonl")
SEEDS: Final = range(560)


def load() -> dict[int, Observed]:
    """Return the current records by seed: those of workflows that the seeds still lead to."""
    found = {}
    for line in _FILE.read_text(encoding="utf-8").splitlines() if _FILE.exists() else ():
        data = json.loads(line)
        if data["seed"] in SEEDS and data["workflow"] == digest(random_case(data["seed"]).manifest):
            found[data["seed"]] = Observed.of_json(data)
    return found


def save(records: dict[int, Observed]) -> None:
    """Write all records."""
    _FILE.write_text("".join(f"{_line(seed, records[seed])}\n" for seed in sorted(records)), encoding="utf-8")


def _line(seed: int, observed: Observed) -> str:
    data: dict[str, Any] = {"seed": seed, "workflow": digest(random_case(seed).manifest), **observed.as_json()}
    return json.dumps(data, ensure_ascii=False)


_EXAMPLES: Final = Path(__file__).with_name("examples.jsonl")


def load_examples() -> tuple[list[Example], dict[str, Observed]]:
    """Return the examples, and their current records, by the names of the workflows."""
    lines = _EXAMPLES.read_text(encoding="utf-8").splitlines() if _EXAMPLES.exists() else []
    data = [json.loads(line) for line in lines]
    examples = [Example(each["example"], each["documents"]) for each in data]
    runs = {name: run for each in data for name, run in each["runs"].items()}
    current = {case.name for case in cases(examples) if (runs.get(case.name) or {}).get("workflow") == played(case)}
    return examples, {name: Observed.of_json(run) for name, run in runs.items() if name in current}


def played(case: ExampleCase) -> str:
    """Return what identifies a workflow of an example and all that it refers to."""
    return digest(case.documents)


def save_examples(examples: Sequence[Example], records: Mapping[str, Observed]) -> None:
    """Write all examples, and the records of their workflows."""
    lines = []
    found: dict[str, dict[str, Any]] = {each.name: {} for each in examples}
    for case in cases(examples):
        if case.name in records:
            run = {"workflow": played(case), **records[case.name].as_json()}
            found[case.example.name][case.name] = run
    for each in examples:
        data = {"example": each.name, "documents": each.documents, "runs": found[each.name]}
        lines.append(json.dumps(data, ensure_ascii=False))
    _EXAMPLES.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
