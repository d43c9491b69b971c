"""The table of manifests that the API server and the models judge alike: `tests/support/admission.yaml`."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from perdure.api.labels import API_VERSION

Json = dict[str, Any]

_TABLE = Path(__file__).parent / "admission.yaml"
CASES = [
    pytest.param(section["kind"], case, id=f"{section['kind']}: {case['case']}")
    for section in yaml.safe_load_all(_TABLE.read_text(encoding="utf-8"))
    for case in section["cases"]
]


def manifest(kind: str, case: Json) -> Json:
    """The complete manifest of a case."""
    body = case.get("whole", {"spec": case.get("spec")})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": case.get("metadata", {"name": "one"}), **body}


def assert_part(want: Any, got: Any, path: str) -> None:
    """Check that all expected fields exist; additional ones are allowed."""
    if isinstance(want, dict):
        assert isinstance(got, dict), path
        for key, value in want.items():
            assert key in got, f"{path}.{key} is missing"
            assert_part(value, got[key], f"{path}.{key}")
    elif isinstance(want, list):
        for i, value in enumerate(want):
            assert_part(value, got[i], f"{path}[{i}]")
    else:
        assert got == want, path
