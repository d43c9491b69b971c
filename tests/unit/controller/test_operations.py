"""What Operations are sorted and looked up by."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from perdure.controller.answers import arrival, identity
from perdure.controller.targets import escaped


def operation(version: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "ask", "resourceVersion": version}, "status": status}


def test_operations_keep_the_place_that_they_had_when_they_were_taken_up() -> None:
    new, noted = operation("120"), operation("999", arrival=80)
    assert sorted([new, noted, operation("1000")], key=arrival) == [noted, new, operation("1000")]
    assert identity(new) == "operation/ask"


def unescaped(text: str) -> str:
    """As the API server reads a value in a field selector (k8s.io/apimachinery/pkg/fields: UnescapeValue)."""
    read, rest = "", iter(text)
    for character in rest:
        assert character not in ",="
        read += next(rest) if character == "\\" else character
    return read


@given(st.text(alphabet="a\\,= /", max_size=20))
def test_any_workflow_id_can_be_looked_up(workflow_id: str) -> None:
    assert unescaped(escaped(workflow_id)) == workflow_id
