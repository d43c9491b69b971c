"""The form for the input of a run: its fields by the schema of the Workflow, and the conversion of user input."""

from typing import Any

import pytest

from perdure.console.start import MAX_FIELDS, Control, InputForm

SCHEMA = {
    "type": "object",
    "required": ["id", "amount"],
    "additionalProperties": False,
    "$defs": {"Color": {"enum": ["red", "green"], "title": "Color"}},
    "properties": {
        "amount": {"type": "integer", "minimum": 1, "title": "Amount", "description": "In cents"},
        "color": {"anyOf": [{"$ref": "#/$defs/Color"}, {"type": "null"}], "default": None},
        "express": {"type": "boolean", "default": False},
        "id": {"type": "string", "minLength": 2},
        "items": {"type": "array", "items": {"type": "object", "required": ["name"]}},
        "level": {"enum": [1, "1", None]},
        "note": {"type": ["string", "null"]},
        "rate": {"type": "number"},
    },
}


def form(schema: Any = SCHEMA, default: Any = None, **options: Any) -> InputForm:
    return InputForm({"input": {"schema": schema, "default": default}}, **options)


def filled(made: InputForm, **entered: str) -> tuple[Any, dict[str, str]]:
    found = made.fill(lambda name: entered.get(name.removeprefix("input.") if name != "input" else "document", ""))
    return found.input, dict(found.problems)


def test_the_fields_follow_the_schema_and_required_ones_come_first() -> None:
    fields = {field.key: field for field in form().fields}
    assert list(fields) == ["amount", "id", "color", "express", "items", "level", "note", "rate"]
    assert {key: str(field.control) for key, field in fields.items()} == {
        "amount": "integer",
        "id": "text",
        "color": "choice",
        "express": "choice",
        "items": "json",
        "level": "choice",
        "note": "text",
        "rate": "number",
    }
    assert [key for key, field in fields.items() if field.required] == ["amount", "id"]
    amount = fields["amount"]
    assert (amount.name, amount.label, amount.description) == ("input.amount", "Amount", "In cents")
    assert fields["color"].label == "Color"
    assert list(fields["color"].options) == [('"red"', "red"), ('"green"', "green")]
    assert fields["express"].value == "false"
    assert fields["level"].choices == ("1", '"1"', "null")


def test_values_have_the_types_of_the_schema() -> None:
    entered = {"id": "A-1", "amount": "349", "color": '"red"', "express": "true", "items": '[{"name": "lamp"}]'}
    assert filled(form(), **entered, level='"1"', rate="1.5", note="") == (
        {
            "amount": 349,
            "id": "A-1",
            "color": "red",
            "express": True,
            "items": [{"name": "lamp"}],
            "level": "1",
            "rate": 1.5,
        },
        {},
    )


@pytest.mark.parametrize(
    ("entered", "field", "message"),
    [
        ({"amount": ""}, "amount", "Enter a value."),
        ({"id": ""}, "id", "Enter a value."),
        ({"amount": "many"}, "amount", "Enter a whole number."),
        ({"amount": "1.5"}, "amount", "Enter a whole number."),
        ({"amount": "true"}, "amount", "Enter a whole number."),
        ({"amount": "9" * 5000}, "amount", "Enter a whole number."),
        ({"amount": "0"}, "amount", "0 is less than the minimum of 1"),
        ({"rate": "NaN"}, "rate", "Enter a number."),
        ({"rate": "x"}, "rate", "Enter a number."),
        ({"color": '"blue"'}, "color", "Select one of the values."),
        ({"items": "[1"}, "items", "Enter JSON: "),
        ({"items": "[" * 100_000}, "items", "Enter JSON: "),
        ({"items": '[{"name": 1}, {}]'}, "items", '[1]: "name" is a required property'),
        ({"id": "A"}, "id", '"A" is shorter than 2 characters'),
    ],
)
def test_errors_are_shown_at_their_field(entered: dict[str, str], field: str, message: str) -> None:
    _, problems = filled(form(), **{"id": "A-1", "amount": "349", **entered})
    assert list(problems) == [f"input.{field}"]
    assert problems[f"input.{field}"].startswith(message)


def test_errors_of_several_fields_are_shown_together() -> None:
    _, problems = filled(form(), amount="0", items="x")
    assert list(problems) == ["input.amount", "input.id", "input.items"]


def test_an_error_without_a_field_is_shown_for_the_form() -> None:
    schema = {"type": "object", "minProperties": 1, "properties": {"a": {"type": "string"}}}
    assert filled(form(schema)) == ({}, {"": "{} has less than 1 property"})


def test_a_default_of_the_workflow_fills_the_field_and_applies_if_it_is_empty() -> None:
    made = form(default={"amount": 12, "color": "green", "items": [{"name": "lamp"}], "id": "A-0"})
    values = {field.key: field.value for field in made.fields}
    assert (values["amount"], values["color"], values["id"]) == ("12", '"green"', "A-0")
    assert values["items"] == '[\n  {\n    "name": "lamp"\n  }\n]'
    assert not any(field.required for field in made.fields)
    assert filled(made) == ({}, {})


def test_multi_line_text_gets_a_text_area_and_other_defaults_are_json() -> None:
    schema = {"properties": {"script": {"type": "string", "default": "a\nb"}, "odd": {"type": "string", "default": 1}}}
    assert [field.control for field in form(schema).fields] == [Control.LINES, Control.JSON]


@pytest.mark.parametrize(
    ("schema", "default"),
    [
        (None, None),
        (None, {"a": 1}),
        ({"type": "array"}, None),
        ({"type": "object"}, None),
        ({"type": "object", "properties": {f"p{number}": {} for number in range(MAX_FIELDS + 1)}}, None),
        ({"type": "object", "properties": {"a": {}}}, "other"),
    ],
)
def test_other_inputs_are_written_as_json(schema: Any, default: Any) -> None:
    (field,) = form(schema, default).fields
    assert (field.key, field.name, field.control) == (None, "input", "json")


def test_an_input_as_json_is_validated() -> None:
    made = form(as_json=True)
    assert filled(made, document='{"id": "A-1", "amount": 1}') == ({"id": "A-1", "amount": 1}, {})
    assert filled(made, document="{") == (
        None,
        {"input": "Enter JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)."},
    )
    _, problems = filled(made, document='{"id": "A-1", "amount": 0}')
    assert problems == {"input": "amount: 0 is less than the minimum of 1"}
    assert filled(form(None, {"a": 1}), document="") == (None, {})
    assert filled(form(None), document="[1]") == ([1], {})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": 7},
        {"properties": []},
        {"properties": {"a": 1, "b": True, "c": {"type": []}, "d": {"enum": []}, "e": {"$ref": "#/none"}}},
        {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"required": 1, "properties": {"a": {"anyOf": [{"type": "null"}], "title": 1, "description": []}}},
    ],
)
def test_any_schema_results_in_a_form(schema: Any) -> None:
    made = form(schema)
    assert made.fields
    made.fill(lambda _: "1")
