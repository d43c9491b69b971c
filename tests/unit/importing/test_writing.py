import pytest
import yaml

from perdure.api.yaml_text import dump_blocks
from perdure.cli.files.documents import Loader
from perdure.importing.writer import plain, write

TEXTS = [
    "y",
    "n",
    "on",
    "12:30",
    "1e3",
    "1.5e3",
    "+.5",
    ".inf",
    "0o14",
    "0b1",
    "+7",
    "0x1",
    "1_000",
    "null",
    "~",
    "2026-01-01",
    "",
    " a",
    "a: b",
    "# a",
    "ü",
    "a\n",
    "\ta\nb",
]


@pytest.mark.parametrize(
    "text", [*TEXTS, "two\nlines\n", "two\n\nlines", "  indented\nlines", "trailing \nspace", "'#': x"]
)
def test_strings_remain_strings_for_kubectl(text: str) -> None:
    assert yaml.load(write([{"a": {text or "empty": text}, "b": [text]}]), Loader=Loader)["b"] == [text]


@pytest.mark.parametrize("value", [*TEXTS, True, 7, 1.5, 1e30, None])
def test_values_remain_the_same_for_kubectl_in_blocks(value: object) -> None:
    read = yaml.load(dump_blocks({"a": {str(value) or "empty": value}, "b": [value]}), Loader=Loader)
    assert read == {"a": {str(value) or "empty": value}, "b": [value]}


def test_comments_precede_what_they_describe() -> None:
    manifest = {
        "#": "first\n\nsecond",
        "list": [{"#": "about: it", "a": 1}, {"a": 2}],
        "map": {"#": "inside", "b": [1]},
    }
    text = write([manifest, {"c": 1}])
    assert text == (
        "# first\n#\n# second\nlist:\n# about: it\n- a: 1\n- {a: 2}\nmap:\n  # inside\n  b: [1]\n---\n{c: 1}\n"
    )
    assert yaml.safe_load(text.split("---")[0]) == plain(manifest)
