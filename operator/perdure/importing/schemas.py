"""Checks foreign manifests against the schemas of their kinds, so that a mistake in the source is reported at its place.

`schemas.json` has the fields of each kind, and their types. hack/foreign_schemas.py writes it from the CRDs of Argo and Tekton.
The shape of a field follows its place in the schema, never its name.
"""

import json
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any, Final

from perdure.importing.reader import ConversionReport, ConvertedObject, Object, as_text, format_value, name_of

_NAMES: Final = {"argo": "Argo Workflows", "tekton": "Tekton"}
_GROUPS: Final = {"argo": "argoproj.io", "tekton": "tekton.dev"}
_VERSIONS: Final = {"argo": ("v1alpha1",), "tekton": ("v1", "v1beta1")}
_ALSO: Final = {"StepAction": ("v1alpha1",)}
"""Further versions of single kinds."""
_SCALARS: Final[dict[str, tuple[str, tuple[type, ...]]]] = {
    "string": ("a string", (str, int, float, bool)),
    "integer": ("a whole number", (int,)),
    "number": ("a number", (int, float)),
    "boolean": ("true or false", (bool,)),
    "int-or-string": ("a number or a string", (str, int, float)),
    "object": ("a map", (dict,)),
}
"""The name of each scalar type in messages, and its types in Python. Numbers and booleans count as their text where a
string belongs: Argo reads them so in parameters. `object` is a map with any content."""
_WRONG: Final = object()

Shape = Any
"""The name of a scalar type, the number of an object type, `[shape]` for a list, or `{"*": shape}` for a map with any names."""


@cache
def _tables() -> Any:
    return json.loads(files("perdure.importing").joinpath("schemas.json").read_text(encoding="utf-8"))


class Schema:
    """The schemas of the kinds of one system."""

    def __init__(self, system: str) -> None:
        """`system`: `argo` or `tekton`."""
        self.system = system

    @property
    def kinds(self) -> dict[str, int]:
        """Return the number of the type of each kind."""
        found: dict[str, int] = _tables()["kinds"][self.system]
        return found

    def fields(self, number: int) -> dict[str, Shape]:
        """Return the shapes of the fields of an object type."""
        found: dict[str, Shape] = _tables()["types"][number]
        return found

    def read(self, documents: Iterable[Object]) -> list[tuple[Object, ConvertedObject]]:
        """Check documents; return each with the object to which it is converted."""
        found = [(each, ConvertedObject(name_of(each))) for each in documents]
        return [(self.checked(each, of.report) if self._is_own(each, of.report) else {}, of) for each, of in found]

    def _is_own(self, document: Object, report: ConversionReport) -> bool:
        """Whether an object is not one of yet another system, with a kind of the same name; report that, and unknown versions."""
        kind, version = str(document["kind"]), document.get("apiVersion")
        if kind not in self.kinds or version is None:
            return True
        group, known = _GROUPS[self.system], (*_VERSIONS[self.system], *_ALSO.get(kind, ()))
        if str(version).rpartition("/")[0] != group:
            report.note("apiVersion", f"{format_value(version)} is not a version of `{group}`: the object is left out")
            return False
        if str(version).rpartition("/")[2] not in known:
            names = " or ".join(f"`{group}/{each}`" for each in known)
            report.gap("apiVersion", f"must be {names}, not {format_value(version)}")
        return True

    def checked(self, document: Object, report: ConversionReport) -> Object:
        """Return a document without the fields that its schema does not have, or that have another type; report each.

        Args:
            document: A manifest; of other kinds, only the outermost fields are checked.
            report: Gets the mistakes.
        """
        kind = self.kinds.get(str(document.get("kind")))
        if kind is not None:
            made: Object = self._object(document, kind, "", report)
            return {**made, **({"metadata": _texts(made["metadata"], report)} if "metadata" in made else {})}
        outer = {"metadata": "object", "spec": "object", "data": {"*": "string"}}
        fields = {name: self._value(document[name], outer[name], name, report) for name in outer if document.get(name)}
        return {**document, **{name: {} if value is _WRONG else value for name, value in fields.items()}}

    def _value(self, value: Any, shape: Shape, path: str, report: ConversionReport) -> Any:
        """Return a checked value; `_WRONG` after a mistake."""
        if shape == "any":
            return value
        if isinstance(shape, int) and isinstance(value, dict):
            return self._object(value, shape, path, report)
        if isinstance(shape, dict) and isinstance(value, dict):
            made = {key: self._value(each, shape["*"], f"{path}.{key}", report) for key, each in value.items()}
            return {key: each for key, each in made.items() if each is not _WRONG}
        if isinstance(shape, list) and isinstance(value, list):
            items = [self._value(each, shape[0], f"{path}[{i}]", report) for i, each in enumerate(value)]
            return [each for each in items if each is not _WRONG]
        if isinstance(shape, str) and _is(value, shape):
            # A quantity such as 0.5 is a text for Kubernetes.
            return str(value) if shape == "int-or-string" and isinstance(value, float) else value
        report.gap(path, f"must be {_expected(shape)}, not {format_value(value)}")
        return _WRONG

    def _object(self, value: Object, number: int, path: str, report: ConversionReport) -> Object:
        shapes = self.fields(number)
        kept = {}
        for key, each in value.items():
            name = self._name(str(key), shapes)
            where = f"{path}.{key}" if path else str(key)
            if each is None:
                continue
            if name not in shapes:
                report.gap(where, self._unknown(str(key), shapes))
                continue
            found = self._value(each, shapes[name], where, report)
            if found is not _WRONG:
                kept[name] = found
        return kept

    def _name(self, key: str, shapes: dict[str, Shape]) -> str:
        """Return the name of a field. Tekton's webhook ignores the case of names, as Go does."""
        if key in shapes or self.system != "tekton":
            return key
        return next((name for name in shapes if name.lower() == key.lower()), key)

    def _unknown(self, key: str, shapes: dict[str, Shape]) -> str:
        close = get_close_matches(key, shapes, n=1)
        advice = f"did you mean `{close[0]}`?" if close else "remove it"
        return f"is not a field of {_NAMES[self.system]} here; {advice}"


def _texts(metadata: Object, report: ConversionReport) -> Object:
    """Return the metadata of an object with names, labels, and annotations that are texts; report those that are not."""
    made = dict(metadata)
    places = [(made, "metadata", name) for name in ("name", "generateName", "namespace") if name in made]
    for field in ("labels", "annotations"):
        if isinstance(made.get(field), dict):
            made[field] = dict(made[field])
            places += [(made[field], f"metadata.{field}", name) for name in made[field]]
    for of, path, name in places:
        if not isinstance(of[name], str):
            report.gap(f"{path}.{name}", f"must be a string, not {format_value(of[name])}; write it in quotes")
            of[name] = as_text(of[name])
    return made


def _is(value: Any, shape: str) -> bool:
    kinds = _SCALARS[shape][1]
    return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))


def _expected(shape: Shape) -> str:
    if isinstance(shape, list):
        return "a list of maps" if isinstance(shape[0], int) else "a list"
    return _SCALARS[shape][0] if isinstance(shape, str) else "a map"
