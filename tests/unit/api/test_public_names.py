"""The names of `perdure.api`: one for each model that users write, and stable."""

import subprocess
import sys
from enum import Enum
from typing import Any, get_args

import pytest

from perdure import api, client, flow
from perdure.api.crdgen import KINDS
from perdure.api.models import ApiModel


def parts(kind: Any, found: set[type]) -> set[type]:
    """The models and choices of a kind, without its status."""
    if isinstance(kind, type) and issubclass(kind, ApiModel | Enum) and kind not in found:
        found.add(kind)
        fields = kind.model_fields.items() if issubclass(kind, ApiModel) else ()
        for field in [field for name, field in fields if name != "status"]:
            parts(field.annotation, found)
    for argument in get_args(kind):
        parts(argument, found)
    return found


def test_each_model_that_users_write_is_public_by_its_own_name() -> None:
    found: set[type] = set()
    for kind in KINDS:
        if not kind.info.is_record:
            parts(kind, found)
    others = {"InvalidManifestError", "activities", "all_from_yaml", "from_yaml", "steps", "to_manifest", "to_yaml"}
    assert {each.__name__ for each in found} == set(api.__all__) - others
    assert {getattr(api, each.__name__) for each in found} == found
    assert others <= set(api.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Workfow"):
        _ = api.Workfow  # type: ignore[attr-defined]


def test_notebooks_complete_the_public_names() -> None:
    for module in (api, client, flow):
        assert set(module.__all__) <= set(dir(module))


def test_the_package_imports_pydantic_with_the_first_model() -> None:
    code = "import sys, perdure.api as api; print('pydantic' in sys.modules); api.Workflow; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
