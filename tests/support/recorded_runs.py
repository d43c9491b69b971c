"""Runs that an earlier version recorded on a cluster, with values."""

import json
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent / "recorded"
NAMES = sorted(file.stem for file in _FOLDER.iterdir())


def recorded(name: str) -> dict[str, Any]:
    """The WorkflowRun of that name."""
    run: dict[str, Any] = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return run
