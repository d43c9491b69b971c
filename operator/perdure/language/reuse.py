"""`from`: copies activities and blocks of other Workflows, the libraries, into a definition. Pure.

    definition, libraries ─▶ compose ─▶ a definition without `from` ─▶ compiler

A run is pinned to the result, so nothing behind this module knows libraries. A copied block calls activities and blocks of its
library, which are copied as well, under a name with a number if their own is taken. A mistake in a copy is reported at the
`from` that caused it, because the copy has no place in a manifest.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from itertools import count
from typing import Any, Final, Literal

from perdure.api.fields import MAX_NAME
from perdure.api.json_values import Json, mapping, mappings, text
from perdure.api.kinds.workflow import Activity, Block
from perdure.api.models import SpecModel
from perdure.language.program import Finding, Severity

MAX_LIBRARIES: Final = 20
"""Maximum number of Workflows whose parts one definition copies, directly and indirectly."""

Kind = Literal["activities", "blocks"]

_NOUNS: Final[Mapping[Kind, str]] = {"activities": "activity", "blocks": "block"}
_MODELS: Final[Mapping[Kind, type[SpecModel]]] = {"activities": Activity, "blocks": Block}
_PART: Final = re.compile(r"spec\.(?:activities|blocks)\[\d+\]")
_FROM: Final = re.compile(_PART.pattern + r"\.from\b")


@dataclass(frozen=True, slots=True)
class Library:
    """A Workflow whose parts are copied."""

    spec: Json
    generation: int = 0
    """The `metadata.generation` of the Workflow; 0 if it is not known."""


Libraries = Mapping[str, Library | None]
"""Libraries by name, in other namespaces by `<namespace>/<name>`; None: the Workflow does not exist, or must not be used."""


@dataclass(frozen=True, slots=True)
class MissingLibrary:
    """A library that does not exist."""

    path: str
    """Path of the reference, in the definition or of the `from` that leads to it."""
    workflow: str
    through: str = ""
    """The part of another library that refers to it, such as ``block `report` of Workflow `shared` ``; empty: the definition."""

    def sentence(self, namespace: str) -> str:
        """Say where what is missing for a definition in a namespace."""
        where, separator, name = self.workflow.rpartition("/")
        which = f", from which {self.through} is copied" if self.through else ""
        usable = f" with `{namespace}` in its `allowedNamespaces`" if separator else ""
        return f"{self.path}: there is no Workflow `{name}` in namespace `{where or namespace}`{usable}{which}"


@dataclass(frozen=True, slots=True)
class _Copy:
    """Where a part of the result comes from."""

    place: str
    """Path of the `from` that caused the copy."""
    label: str
    """Such as ``block `report` of Workflow `shared` ``."""
    written: bool
    """Whether the definition itself has the entry, with its `from`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Composition:
    """A definition with the parts that it copies."""

    definition: Json
    """The definition without `from`; what could not be copied still has it."""
    unread: frozenset[str] = frozenset()
    """The libraries that are needed and have not been read yet."""
    missing: tuple[MissingLibrary, ...] = ()
    findings: tuple[Finding, ...] = ()
    """Why parts could not be copied."""
    libraries: frozenset[str] = frozenset()
    """The names of all libraries that it needs; a change of one of them can change the result."""
    sources: tuple[Json, ...] = ()
    """What was copied from which library, as in `status.sources` of a run."""
    copies: Mapping[str, _Copy] = field(default_factory=dict)
    """Where the copies come from, by path in the result."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Where what the definition as written does not have comes from, by path in the definition that was composed."""

    def place(self, path: str) -> str:
        """The path in the definition as written of a path in the result."""
        copy = self._copy(path)
        path = path if copy is None else copy.place
        for added, origin in self.places.items():
            if path == added or path.startswith((f"{added}.", f"{added}[")):
                return origin + path.removeprefix(added)
        return path

    def located(self, findings: Iterable[Finding]) -> list[Finding]:
        """Findings about the result, with paths of the definition as written.

        Only errors of copies remain: their library shows the rest.
        """
        return [each for finding in findings if (each := self._located(finding)) is not None]

    def _located(self, finding: Finding) -> Finding | None:
        copy, place = self._copy(finding.path), self.place(finding.path)
        if copy is None:
            return replace(finding, path=place)
        inside = _PART.sub("", finding.path, count=1).removeprefix(".")
        if finding.severity is not Severity.ERROR:
            return finding if copy.written and not inside else None
        where = f"{copy.label}: {inside}" if inside else copy.label
        return replace(finding, path=place, message=f"{where}: {finding.message}")

    def _copy(self, path: str) -> _Copy | None:
        part = _PART.match(path)
        return self.copies.get(part[0]) if part is not None else None


def is_library(definition: Mapping[str, Any]) -> bool:
    """Whether a definition has no steps, so that it can only be used by others."""
    return not definition.get("steps") and bool(definition.get("activities") or definition.get("blocks"))


def is_of_library(finding: Finding) -> bool:
    """Whether a finding is about what a `from` copies, so that a change of a library can fix it."""
    return _FROM.match(finding.path) is not None


def reference_from(namespace: str, library_namespace: str, library: str) -> str:
    """The name of a library in `Composition.libraries` of a definition in a namespace."""
    return library if library_namespace == namespace else f"{library_namespace}/{library}"


def in_namespace(workflows: Iterable[tuple[str, str, Json]], namespace: str) -> dict[str, Library]:
    """The libraries among some Workflows that a definition in a namespace can use.

    Args:
        workflows: The Workflows: namespace (empty: unknown), name, and spec.
        namespace: The namespace; empty: unknown, so that it is any that a library allows.
    """
    found: dict[str, Library] = {}
    for where, name, spec in workflows:
        if not (where and namespace) or where == namespace:
            found[name] = Library(spec)
        if where and (allows(spec, namespace) or (not namespace and spec.get("allowedNamespaces"))):
            found[f"{where}/{name}"] = Library(spec)
    return found


def allows(library: Mapping[str, Any], namespace: str) -> bool:
    """Whether definitions in another namespace can copy from a library.

    Args:
        library: The spec of the Workflow.
        namespace: The namespace of the definition.
    """
    allowed = library.get("allowedNamespaces")
    return isinstance(allowed, list) and (namespace in allowed or "*" in allowed)


def at_home(definition: Json, home: str) -> Json:
    """A definition for a run in another namespace than its Workflow: its references name the namespace of the Workflow.

    Args:
        definition: The definition as JSON; not modified.
        home: The Workflow, of another namespace by `<namespace>/<name>`.
    """
    where, separator, _ = home.rpartition("/")
    if not separator:
        return definition

    def located(entry: Any) -> Any:
        reference = mapping(mapping(entry).get("from"))
        workflow = text(reference.get("workflow"))
        if not workflow or "/" in workflow:
            return entry
        return {**entry, "from": {**reference, "workflow": f"{where}/{workflow}"}}

    lists = {kind: definition[kind] for kind in _NOUNS if isinstance(definition.get(kind), list)}
    return {**definition, **{kind: [located(entry) for entry in entries] for kind, entries in lists.items()}}


def compose(definition: Json, libraries: Libraries, namespace: str = "") -> Composition:
    """Copy the parts that a definition takes from libraries.

    Args:
        definition: The definition as JSON, which may be invalid; not modified.
        libraries: The libraries that have been read. Call again with more as long as the result has `unread` ones.
        namespace: The namespace of the definition; empty: unknown.
    """
    entries = [entry for kind in _NOUNS for entry in mappings(definition.get(kind))]
    if not any(entry.get("from") for entry in entries):
        return Composition(definition=definition)
    return _Composer(definition, libraries, namespace).compose()


def compose_all(definition: Json, libraries: Libraries, namespace: str = "") -> Composition:
    """Copy the parts that a definition takes from libraries; those that are not given do not exist."""
    while (composed := compose(definition, libraries, namespace)).unread:
        libraries = {**libraries, **dict.fromkeys(composed.unread)}
    return composed


@dataclass(frozen=True, slots=True)
class _Part:
    """An activity or a block with a definition of its own, and the library that has it."""

    workflow: str
    name: str
    body: Json

    def label(self, kind: Kind) -> str:
        return f"{_NOUNS[kind]} `{self.name}` of Workflow `{self.workflow}`"


_Rename = Callable[[Kind, str], str]


class _Composer:
    def __init__(self, definition: Json, libraries: Libraries, namespace: str) -> None:
        self.definition = definition
        self.libraries = libraries
        self.namespace = namespace
        self.unread: set[str] = set()
        self.missing: dict[MissingLibrary, None] = {}
        self.findings: dict[Finding, None] = {}
        self.used: dict[str, None] = {}
        self.sources: dict[str, Json] = {}
        self.copies: dict[str, _Copy] = {}
        self.results: dict[Kind, list[Any]] = {"activities": [], "blocks": []}
        self.taken: dict[Kind, set[str]] = {kind: set(_by_name(definition, kind)) for kind in _NOUNS}
        self.names: dict[tuple[str, Kind, str], str] = {}
        """The names of copies that blocks can call, by library, kind, and name in the library."""
        self.called: list[tuple[str, Kind, str, str]] = []
        """What blocks call and is not copied yet: library, kind, name, and the `from` that leads to it."""

    def compose(self) -> Composition:
        for kind in _NOUNS:
            for entry in mappings(self.definition.get(kind)):
                origin = self.origin(entry)
                if origin is not None and not _overrides(entry, kind):
                    workflow, name = origin
                    self.names.setdefault((workflow, kind, name), text(entry.get("name")))
        for kind in _NOUNS:
            found = self.definition.get(kind)
            for i, entry in enumerate(found if isinstance(found, list) else ()):
                self.results[kind].append(self.entry(f"spec.{kind}[{i}]", kind, entry))
        for workflow, kind, name, place in self.called:  # grows
            part = self.part(kind, workflow, name, place)
            if part is not None:
                index = len(self.results[kind])
                copy = self.copied(kind, part, self.names[workflow, kind, name], place)
                self.copies[f"spec.{kind}[{index}]"] = _Copy(place, part.label(kind), written=False)
                self.results[kind].append(copy)
        composed: Json = {kind: entries for kind, entries in self.results.items() if entries}
        return Composition(
            definition={**self.definition, **composed},
            unread=frozenset(self.unread),
            missing=tuple(self.missing),
            findings=tuple(self.findings),
            libraries=frozenset(self.used),
            sources=tuple(self.sources.values()),
            copies=self.copies,
        )

    def entry(self, path: str, kind: Kind, entry: Any) -> Any:
        """Return an entry of the definition, with what it copies in place of `from`."""
        origin = self.origin(entry)
        if origin is None:
            return entry
        place = f"{path}.from"
        part = self.part(kind, *origin, place, named=bool(entry["from"].get(_NOUNS[kind])))
        if part is None:
            return entry
        self.copies[path] = _Copy(place, part.label(kind), written=True)
        return {**self.copied(kind, part, text(entry.get("name")), place), **_overrides(entry, kind)}

    def part(self, kind: Kind, workflow: str, name: str, place: str, *, named: bool = False) -> _Part | None:
        """Find a part of a library that may itself be copied from another one.

        Args:
            kind: Its kind.
            workflow: The library.
            name: Its name there.
            place: Path of the `from` that leads to it.
            named: Whether `from` gives the name.
        """
        noun, trail, overrides = _NOUNS[kind], list[_Part](), list[Json]()
        while True:
            through = trail[-1].label(kind) if trail else ""
            library = self.library(MissingLibrary(f"{place}.workflow" if not trail else place, workflow, through))
            if library is None:
                return None
            known = _by_name(library.spec, kind)
            if name not in known:
                self.report(
                    f"{place}.{noun}" if named and not trail else place, _unknown(kind, workflow, name, [*known])
                )
                return None
            part = _Part(workflow, name, known[name])
            if any((workflow, name) == (each.workflow, each.name) for each in trail):
                chain = ", which is copied from ".join(each.label(kind) for each in (*trail, part))
                self.report(place, f"is a cycle: {chain}; define the {noun} in one of them")
                return None
            origin = self.origin(part.body, workflow)
            if origin is None:
                break
            trail.append(part)
            overrides.append(_overrides(part.body, kind))
            workflow, name = origin
        body = dict(part.body)
        for override in reversed(overrides):
            body |= override
        return replace(part, body=body)

    def origin(self, entry: Any, home: str = "") -> tuple[str, str] | None:
        """The library of an entry and the name there; None if the entry is not copied, or its `from` is not valid.

        Args:
            entry: The entry.
            home: The library that has the entry; empty: the definition.
        """
        reference = mapping(mapping(entry).get("from"))
        workflow = text(reference.get("workflow"))
        name = text(reference.get("activity") or reference.get("block") or entry.get("name")) if workflow else ""
        if "/" in home and "/" not in workflow:
            workflow = f"{home.partition('/')[0]}/{workflow}"
        return (workflow.removeprefix(f"{self.namespace}/"), name) if name else None

    def library(self, reference: MissingLibrary) -> Library | None:
        name = reference.workflow
        self.used[name] = None
        if len(self.used) > MAX_LIBRARIES:
            self.report(reference.path, f"leads to more than {MAX_LIBRARIES} Workflows; copy from fewer")
        elif name not in self.libraries:
            self.unread.add(name)
        elif (found := self.libraries[name]) is not None:
            return found
        else:
            self.missing[reference] = None
        return None

    def copied(self, kind: Kind, part: _Part, name: str, place: str) -> Json:
        """Return a copy of a part under a name; what it calls is copied later."""
        library = self.libraries[part.workflow]
        assert library is not None
        source = self.sources.setdefault(
            part.workflow,
            {"workflow": part.workflow, "generation": library.generation, "activities": {}, "blocks": {}},
        )
        source[kind][name] = part.name
        copy = {**part.body, "name": name}
        if kind == "blocks":
            if not copy.get("failurePolicy") and library.spec.get("failurePolicy"):
                copy["failurePolicy"] = library.spec["failurePolicy"]

            def rename(called: Kind, name: str) -> str:
                return self.name_of(called, name, part, library, place)

            copy["steps"] = [_step(step, rename) for step in mappings(part.body.get("steps"))]
        return copy

    def name_of(self, kind: Kind, name: str, caller: _Part, library: Library, place: str) -> str:
        """The name in the result of what a block of a library calls."""
        key = caller.workflow, kind, name
        if key not in self.names:
            known = _by_name(library.spec, kind)
            if name not in known:
                self.report(place, f"{caller.label('blocks')}: {_unknown(kind, caller.workflow, name, [*known])}")
                return name
            self.names[key] = self.free(kind, name)
            self.called.append((*key, place))
        return self.names[key]

    def free(self, kind: Kind, name: str) -> str:
        """A name that is not taken: the name itself, or with a number."""
        numbered = (f"{name[: MAX_NAME - len(suffix)]}{suffix}" for n in count(2) for suffix in [f"-{n}"])
        found = name if name not in self.taken[kind] else next(n for n in numbered if n not in self.taken[kind])
        self.taken[kind].add(found)
        return found

    def report(self, path: str, message: str) -> None:
        self.findings[Finding(path, message)] = None


def _by_name(definition: Mapping[str, Any], kind: Kind) -> dict[str, Json]:
    return {text(entry.get("name")): entry for entry in mappings(definition.get(kind))}


@cache
def _defaults(kind: Kind) -> Json:
    """The defaults of the fields of an entry, which the API server fills in."""
    properties = _MODELS[kind].model_json_schema(by_alias=True)["properties"]
    return {name: field["default"] for name, field in properties.items() if "default" in field}


def _overrides(entry: Json, kind: Kind) -> Json:
    """The fields that replace those of the copied part. A field with its default counts as not set."""
    defaults = _defaults(kind)
    return {
        name: value
        for name, value in entry.items()
        if name not in {"name", "from"} and value not in ([], None) and value != defaults.get(name)
    }


def _unknown(kind: Kind, workflow: str, name: str, known: list[str]) -> str:
    near = get_close_matches(name, known, 1)
    hint = f"did you mean `{near[0]}`?" if near else f"it has {', '.join(known) or 'none'}"
    return f"Workflow `{workflow}` has no {_NOUNS[kind]} `{name}`; {hint}"


# What the steps of a block call


def _step(step: Json, rename: _Rename) -> Json:
    """Return a step with other names for what it calls."""
    step = {key: _call(key, value, rename) for key, value in step.items()}
    if "catch" in step:
        step["catch"] = [_calls(clause, rename) for clause in mappings(step["catch"])]
    if "compensate" in step:
        step["compensate"] = _calls(step["compensate"], rename)
    if "parallel" in step:
        branches = [_call("call", branch, rename) for branch in mappings(mapping(step["parallel"]).get("branches"))]
        step["parallel"] = {**mapping(step["parallel"]), "branches": branches}
    if "switch" in step:
        switch = {**mapping(step["switch"])}
        switch["cases"] = [_calls(case, rename) for case in mappings(switch.get("cases"))]
        step["switch"] = switch | ({"default": _calls(switch["default"], rename)} if switch.get("default") else {})
    return step


def _calls(part: Any, rename: _Rename) -> Json:
    return {key: _call(key, value, rename) for key, value in mapping(part).items()}


def _call(key: str, value: Any, rename: _Rename) -> Any:
    """Return a field of a step, with another name in a call of an activity or a block."""
    if not isinstance(value, dict):
        return value
    if key == "activity" and isinstance(value.get("name"), str):
        return {**value, "name": rename("activities", value["name"])}
    if key in {"call", "onStart", "onEnd"} and isinstance(value.get("block"), str):
        return {**value, "block": rename("blocks", value["block"])}
    return value
