"""The models say what the API server says: the table of `tests/integration/admission.yaml`, without a cluster."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from perdure.api.common import API_VERSION, mistakes
from perdure.api.crdgen import KINDS

Json = dict[str, Any]

TABLE = Path(__file__).parents[2] / "integration" / "admission.yaml"
MODELS = {kind.__name__: kind for kind in KINDS}
CASES = [
    pytest.param(section["kind"], case, id=f"{section['kind']}: {case['case']}")
    for section in yaml.safe_load_all(TABLE.read_text(encoding="utf-8"))
    for case in section["cases"]
]


def manifest(kind: str, case: Json) -> Json:
    body = case.get("whole", {"spec": case.get("spec")})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": case.get("metadata", {"name": "one"}), **body}


def assert_part(want: Any, got: Any, path: str) -> None:
    """Check that everything that is wanted is there; there may be more."""
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


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_models_take_and_refuse_what_the_api_server_does(kind: str, case: Json) -> None:
    try:
        parsed = MODELS[kind].parse(manifest(kind, case))
    except ValidationError as error:
        said = "\n".join(mistakes(error))
        wanted = case.get("refused", [])
        assert wanted, f"refused, but should be taken: {said}"
        for part in [*wanted, *case.get("model", [])]:
            assert part in said
    else:
        assert "refused" not in case, "taken, but should be refused"
        assert_part(case.get("stored", {}), parsed.dump(), kind)


def test_what_is_written_is_read_as_the_same() -> None:
    for parameter in CASES:
        kind, case = parameter.values
        if "refused" not in case:
            parsed = MODELS[kind].parse(manifest(kind, case))
            assert MODELS[kind].parse(parsed.dump()) == parsed, parameter.id
