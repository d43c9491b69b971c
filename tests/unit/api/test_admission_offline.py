"""The models give the same errors as the API server: the table of `tests/support/admission.yaml`, without a cluster."""

from typing import Any

import pytest
from pydantic import ValidationError

from perdure.api.crdgen import KINDS
from perdure.api.models import mistakes
from support.admission import CASES, assert_part, manifest

Json = dict[str, Any]

MODELS = {kind.__name__: kind for kind in KINDS}


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_models_accept_and_reject_the_same_objects_as_the_api_server(kind: str, case: Json) -> None:
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


def test_objects_survive_dump_and_parse() -> None:
    for parameter in CASES:
        kind, case = parameter.values
        if "refused" not in case:
            parsed = MODELS[kind].parse(manifest(kind, case))
            assert MODELS[kind].parse(parsed.dump()) == parsed, parameter.id
