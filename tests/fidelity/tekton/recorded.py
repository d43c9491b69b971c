"""The recorded runs on Tekton's controller: a line of JSON for each example, with its documents and runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from fidelity.argo.observed import Observed, digest
from fidelity.tekton.examples import Example, cases

_FILE: Final = Path(__file__).with_name("examples.jsonl")


def load() -> tuple[list[Example], dict[str, Observed]]:
    """Return the examples, and their current records, by the names of the cases."""
    lines = _FILE.read_text(encoding="utf-8").splitlines() if _FILE.exists() else []
    data = [json.loads(line) for line in lines]
    examples = [Example(each["example"], each["documents"]) for each in data]
    runs = {name: run for each in data for name, run in each["runs"].items()}
    current = {case.name for case in cases(examples) if runs.get(case.name, {}).get("run") == digest(case.documents)}
    return examples, {name: Observed.of_json(run) for name, run in runs.items() if name in current}


def save(examples: Sequence[Example], records: Mapping[str, Observed]) -> None:
    """Write all examples, and the records of their runs."""
    found: dict[str, dict[str, Any]] = {each.name: {} for each in examples}
    for case in cases(examples):
        if case.name in records:
            found[case.example.name][case.name] = {"run": digest(case.documents), **records[case.name].as_json()}
    lines = [
        json.dumps({"example": each.name, "documents": each.documents, "runs": found[each.name]}, ensure_ascii=False)
        for each in examples
    ]
    _FILE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
