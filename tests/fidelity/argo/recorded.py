"""The recorded runs on Argo's controller: a line of JSON for each seed."""

import json
from pathlib import Path
from typing import Any, Final

from fidelity.argo.observed import Observed, digest
from fidelity.argo.workflows import random_case

_FILE: Final = Path(__file__).with_name("recorded.jsonl")
SEEDS: Final = range(560)


def load() -> dict[int, Observed]:
    """Return the current records by seed: those of workflows that the seeds still lead to."""
    found = {}
    for line in _FILE.read_text(encoding="utf-8").splitlines() if _FILE.exists() else ():
        data = json.loads(line)
        if data["seed"] in SEEDS and data["workflow"] == digest(random_case(data["seed"])):
            found[data["seed"]] = Observed.of_json(data)
    return found


def save(records: dict[int, Observed]) -> None:
    """Write all records."""
    _FILE.write_text("".join(f"{_line(seed, records[seed])}\n" for seed in sorted(records)), encoding="utf-8")


def _line(seed: int, observed: Observed) -> str:
    data: dict[str, Any] = {"seed": seed, "workflow": digest(random_case(seed)), **observed.as_json()}
    return json.dumps(data, ensure_ascii=False)
