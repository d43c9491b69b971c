"""How a workflow went, as its author sees it: on Argo, and imported, on Perdure. Both have the same form, to compare them."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from fidelity.argo.controller import Case, Outcome, Played
from perdure.cli.files.conversion import convert_files
from perdure.cli.files.documents import read_documents
from perdure.importing.argo import manifests as argo
from perdure.importing.programs import MISSING_CODE
from perdure.importing.writer import valid_name
from perdure.language.coercion import as_text
from perdure.runtime.pods import payloads
from perdure.simulation.manifests import Manifest, read_definitions, read_scenario
from perdure.simulation.report import Report
from perdure.simulation.scenario import ScriptedAttempt
from perdure.simulation.script import ScriptedEntries
from perdure.simulation.simulator import Simulator

Json = dict[str, Any]
STUCK: Final = "Stuck"
"""The phase of a workflow that Argo's controller never ends."""


@dataclass(frozen=True)
class Observed:
    """How a workflow went."""

    phase: str
    """`Succeeded`, `Failed`, `Error`, or `Stuck`."""
    outputs: Mapping[str, str]
    """The outputs of a workflow that has succeeded."""
    attempts: tuple[tuple[str, Mapping[str, str]], ...]
    """The template and the input of each attempt of a container."""
    errors: tuple[str, ...] = ()
    """What Argo's controller could not do."""

    def numbered(self) -> Iterator[tuple[str, Mapping[str, str], int]]:
        """Yield the template, the input, and the number of each attempt, as `Case.outcome` takes them."""
        counts: Counter[str] = Counter()
        for template, values in self.attempts:
            call = f"{template}/{values}"
            counts[call] += 1
            yield template, values, counts[call]

    def as_json(self) -> Json:
        """Return it as a record."""
        attempts = sorted(([name, dict(sorted(of.items()))] for name, of in self.attempts), key=json.dumps)
        errors = {"errors": list(self.errors)} if self.errors else {}
        return {"phase": self.phase, "outputs": dict(self.outputs), "attempts": attempts, **errors}

    @classmethod
    def of_json(cls, data: Json) -> "Observed":
        """Read a record."""
        return cls(
            data["phase"],
            data["outputs"],
            tuple((name, of) for name, of in data["attempts"]),
            tuple(data.get("errors", ())),
        )


def digest(manifest: Any) -> str:
    """Return what identifies a workflow, so that a record of another one is noticed."""
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()[:12]


def on_argo(played: Played) -> Observed:
    """Return how a workflow went on Argo."""
    status = played.workflow["status"]
    nodes = status.get("nodes") or {}
    main = nodes.get(played.workflow["metadata"]["name"]) or {}
    declared = (main.get("outputs") or {}).get("parameters") or []
    phase = STUCK if played.stuck else status["phase"]
    outputs = {each["name"]: each.get("value", "") for each in declared} if main.get("phase") == "Succeeded" else {}
    attempts = tuple((each.template, each.input) for each in played.attempts if not each.daemon)
    errors = {
        each.get("message", "")
        for each in nodes.values()
        if each["phase"] == "Error" and each["type"] not in {"Pod", "Retry"}
    }
    return Observed(phase, outputs if phase == "Succeeded" else {}, attempts, tuple(sorted(errors - {""})))


@dataclass(frozen=True)
class Imported:
    """How an imported workflow went on Perdure."""

    observed: Observed
    remarks: tuple[str, ...]
    """What was not imported."""
    text: str
    """The manifest."""
    failure: str


@dataclass
class _Script(ScriptedEntries[ScriptedAttempt]):
    """The ends of the containers of an imported workflow, as the case says; the attempts that began."""

    case: Case
    templates: Mapping[str, Json]
    """The templates with work, by name."""
    attempts: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def next(self, name: str, value: Any) -> ScriptedAttempt | None:
        """Return how the next attempt of an activity ends."""
        named = [each for each in self.templates if name == valid_name(each) or name.startswith(f"{valid_name(each)}-")]
        if not named:
            return None
        template = max(named, key=len)
        data = self.templates[template]
        if data.get("daemon"):
            return None  # it runs until it is stopped
        inputs = value if isinstance(value, dict) else {}
        declared = [each["name"] for each in (data.get("inputs") or {}).get("parameters") or []]
        values = {each: as_text(inputs[each]) for each in declared if each in inputs}
        self.attempts.append((template, values))
        key = f"{template}/{values}"
        self.counts[key] += 1
        return _reply(self.case.outcome(template, values, self.counts[key]), data)


def _reply(outcome: Outcome, template: Json) -> ScriptedAttempt:
    """Return the end of an attempt, as the shell around the container of a template reports it."""
    after = timedelta(milliseconds=outcome.milliseconds)
    if outcome.hangs:
        return ScriptedAttempt(hang=True)
    if outcome.code:
        return ScriptedAttempt(exit_code=outcome.code, after=after)
    values: Json = {}
    for each in (template.get("outputs") or {}).get("parameters") or []:
        value = outcome.files.get(each["name"], (each.get("valueFrom") or {}).get("default"))
        if value is None:
            return ScriptedAttempt(exit_code=MISSING_CODE, after=after)
        values[each["name"]] = str(value)
    if outcome.printed is not None:
        values["result"] = outcome.printed
    if len(values) != 1:
        return ScriptedAttempt(output=values or None, after=after)  # the shell writes several values as texts
    (value,) = values.values()
    keeps = value == "null" and outcome.printed is None
    return ScriptedAttempt(output="null" if keeps else payloads.decode(value or '""')[0], after=after)


def on_perdure(
    case: Case,
    folder: Path,
    *,
    documents: Sequence[Json] = (),
    scenario: Callable[[Sequence[Json]], Json] = lambda _: {},
) -> Imported:
    """Import a workflow, simulate it, and return how it went.

    Args:
        case: The workflow, and what its containers do.
        folder: Where the files are written.
        documents: What is imported; by default, the workflow.
        scenario: Returns what happens meanwhile, for the imported manifests.
    """
    name = case.manifest["metadata"]["name"]
    sources: list[str] = []
    for i, each in enumerate(documents or (case.manifest,)):
        source = folder / f"{name}-{i}.yaml"
        source.write_text(json.dumps(each, indent=1, ensure_ascii=False), encoding="utf-8")
        sources.append(str(source))
    made = convert_files(sources, argo.KINDS, argo.convert)
    if not made.complete:
        return Imported(Observed("NotImported", {}, ()), made.sentences, made.text, "")
    target = folder / f"{name}.perdure.yaml"
    target.write_text(made.text)
    manifests = [Manifest(str(target), data) for data in read_documents(str(target))]
    told = read_scenario(scenario([each.data for each in manifests]), "the scenario")
    templates = {each["name"]: each for each in _with_work(documents or (case.manifest,))}
    script = _Script(case, templates)
    world = Simulator(read_definitions(manifests, told, "the scenario"), told, script)
    world.run()
    report = Report(world)
    phase = {"Completed": "Succeeded"}.get(report.phase, "Failed")
    declared = _outputs(case, documents)
    output = report.output
    if len(declared) == 1 and not isinstance(output, dict):
        output = {declared[0]: output}  # of a container
    outputs = {name: output[name] for name in declared if isinstance(output, dict) and name in output}
    failure = report.failure.full_message if report.failure else ""
    texts = {key: as_text(value) for key, value in outputs.items()} if phase == "Succeeded" else {}
    observed = Observed(phase, texts, tuple(script.attempts))
    return Imported(observed, (), made.text, failure)


_WORK: Final = frozenset({"container", "script", "containerSet", "resource", "http"})


def _with_work(value: Any) -> Iterator[Json]:
    """Yield the templates with work in manifests; an inline one has the name of its step."""
    if isinstance(value, dict):
        if isinstance(value.get("inline"), dict):
            yield from _with_work({**value["inline"], "name": value.get("name")})
        if value.keys() & _WORK and isinstance(value.get("name"), str):
            yield value
        for key, each in value.items():
            if key != "inline":
                yield from _with_work(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _with_work(each)


def _outputs(case: Case, documents: Iterable[Json]) -> list[str]:
    """Return the output parameters of the entrypoint of a workflow."""
    specs = [case.manifest["spec"], *(each.get("spec") or {} for each in documents)]
    entry = next((each["entrypoint"] for each in specs if each.get("entrypoint")), None)
    templates = [template for each in specs for template in each.get("templates") or []]
    found: Json = next((each for each in templates if each.get("name") == entry), {})
    return [each["name"] for each in (found.get("outputs") or {}).get("parameters") or []]


def differences(foreign: Observed, perdure: Observed, *, of: str = "Argo") -> Iterator[str]:
    """Yield a sentence for each difference.

    Args:
        foreign: How it went there.
        perdure: How it went here, imported.
        of: The name of the other system.
    """
    if (foreign.phase == "Succeeded") != (perdure.phase == "Succeeded"):
        yield f"phase: {foreign.phase} on {of}, {perdure.phase} on Perdure"
    if _read(foreign.outputs) != _read(perdure.outputs):
        yield f"outputs: {dict(foreign.outputs)} on {of}, {dict(perdure.outputs)} on Perdure"
    left, right = (Counter(_text(name, of) for name, of in each.attempts) for each in (foreign, perdure))
    for text, count in sorted((left - right).items()):
        yield f"only on {of}: {count} x {text}"
    for text, count in sorted((right - left).items()):
        yield f"only on Perdure: {count} x {text}"


def _text(name: str, values: Mapping[str, str]) -> str:
    """Return an attempt as a text."""
    return f"{name} {json.dumps(dict(sorted(_read(values).items())), ensure_ascii=False)}"


def _read(values: Mapping[str, str]) -> Json:
    """Return texts as Perdure reads them: an empty one for `null`, and JSON in one form."""
    return {key: "" if value == "null" else normal(value) for key, value in values.items()}


def normal(text: str) -> str:
    """Return a text; if it is a list or an object in JSON, in a form that does not depend on who has written it."""
    if text.lstrip()[:1] not in {"[", "{"}:
        return text
    try:
        return json.dumps(json.loads(text), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    except ValueError:
        return text
