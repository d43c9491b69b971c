"""How a workflow went, as its author sees it: on Argo, and imported, on Perdure. Both have the same form, to compare them."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fidelity.argo.controller import Played
from fidelity.argo.workflows import Case, Outcome
from perdure.cli.files.conversion import convert_files
from perdure.cli.files.scenarios import simulate_scenario
from perdure.engine import events as ev
from perdure.importing.argo import manifests as argo
from perdure.importing.programs import MISSING_CODE
from perdure.language.coercion import as_text
from perdure.runtime.pods import payloads

Json = dict[str, Any]
STUCK: Final = "Stuck"
"""The phase of a workflow that Argo's controller never ends."""
_ATTEMPT: Final = re.compile(r"\(\d+\)\Z")


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

    def numbered(self) -> Iterator[tuple[str, str, int]]:
        """Yield the template, the `id`, and the number of each attempt, as `Case.outcome` takes them."""
        counts: Counter[tuple[str, str]] = Counter()
        for template, values in self.attempts:
            call = template, values["id"]
            counts[call] += 1
            yield *call, counts[call]

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


def digest(case: Case) -> str:
    """Return what identifies a workflow, so that a record of another one is noticed."""
    return hashlib.sha256(json.dumps(case.manifest, sort_keys=True).encode()).hexdigest()[:12]


def on_argo(played: Played) -> Observed:
    """Return how a workflow went on Argo."""
    status = played.workflow["status"]
    nodes = status.get("nodes") or {}
    main = nodes.get(played.workflow["metadata"]["name"]) or {}
    declared = (main.get("outputs") or {}).get("parameters") or []
    phase = STUCK if played.stuck else status["phase"]
    outputs = {each["name"]: each["value"] for each in declared} if main.get("phase") == "Succeeded" else {}
    attempts = tuple((each.template, each.input) for each in played.attempts)
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


def on_perdure(case: Case, recorded: Observed, folder: Path) -> Imported:
    """Import a workflow, simulate it, and return how it went.

    Args:
        case: The workflow, and what its containers do.
        recorded: How it went on Argo: which calls the scenario has.
        folder: Where the files are written.
    """
    name = case.manifest["metadata"]["name"]
    source, target, scenario = (folder / f"{name}{end}.yaml" for end in ("", ".perdure", ".scenario"))
    source.write_text(json.dumps(case.manifest, indent=1))
    made = convert_files([str(source)], argo.KINDS, argo.convert)
    target.write_text(made.text)
    scenario.write_text(json.dumps({"activities": _scripted(case, recorded)}))
    report = simulate_scenario([str(target)], str(scenario))[1]
    inputs = {}
    for execution in report.transcript.executions:
        for run in getattr(execution, "runs", ()):
            for event in run.events:
                if isinstance(event, ev.ActivityTaskScheduled):
                    inputs[run.name, event.event_id] = event.input
    attempts = tuple(
        (each.activity, _texts(inputs[each.run.name, each.event_id], case, each.activity))
        for each in report.transcript.attempts
    )
    phase = {"Completed": "Succeeded"}.get(report.phase, "Failed")
    entry = next(each for each in case.manifest["spec"]["templates"] if each["name"] == "main")
    outputs = report.output if isinstance(report.output, dict) and "outputs" in entry else {}
    failure = report.failure.full_message if report.failure else ""
    observed = Observed(phase, {key: as_text(value) for key, value in outputs.items()}, attempts)
    return Imported(observed, () if made.complete else made.sentences, made.text, failure)


def _texts(values: Any, case: Case, template: str) -> Mapping[str, str]:
    """Return the parameters of a template in an input, as the texts that its container gets."""
    leaf = case.leaves[template]
    inputs = values if isinstance(values, dict) else {}
    names = ["id", "v"] if leaf.has_value else ["id"]
    return {name: as_text(inputs[name]) for name in names if name in inputs}


def _scripted(case: Case, recorded: Observed) -> Json:
    """Return the entries of a scenario for the calls of a workflow."""
    counts = Counter((template, values["id"]) for template, values in recorded.attempts)
    activities: Json = {}
    for (template, call), count in sorted(counts.items()):
        for number in range(1, count + 2):
            outcome = case.outcome(template, call, number)
            entry = {"whenInput": {"id": call}, **_entry(case, template, outcome)}
            activities.setdefault(template, []).append(entry)
    return activities


def _entry(case: Case, template: str, outcome: Outcome) -> Json:
    after = f"{outcome.milliseconds}ms"
    if outcome.hangs:
        return {"hang": True}
    if outcome.code:
        return {"exitCode": outcome.code, "after": after}
    if outcome.output is None and not case.leaves[template].prints:
        return {"exitCode": MISSING_CODE, "after": after}
    if outcome.output == "null" and not case.leaves[template].prints:
        return {"output": "null", "after": after}
    return {"output": payloads.decode(outcome.output or '""')[0], "after": after}


def differences(argo_: Observed, perdure: Observed) -> Iterator[str]:
    """Yield a sentence for each difference."""
    if (argo_.phase == "Succeeded") != (perdure.phase == "Succeeded"):
        yield f"phase: {argo_.phase} on Argo, {perdure.phase} on Perdure"
    if _read(argo_.outputs) != _read(perdure.outputs):
        yield f"outputs: {dict(argo_.outputs)} on Argo, {dict(perdure.outputs)} on Perdure"
    left, right = (Counter(_text(name, of) for name, of in each.attempts) for each in (argo_, perdure))
    for text, count in sorted((left - right).items()):
        yield f"only on Argo: {count} x {text}"
    for text, count in sorted((right - left).items()):
        yield f"only on Perdure: {count} x {text}"


def _text(name: str, values: Mapping[str, str]) -> str:
    """Return an attempt as a text."""
    return f"{name} {json.dumps(dict(sorted(_read(values).items())), ensure_ascii=False)}"


def _read(values: Mapping[str, str]) -> Json:
    """Return texts as Perdure reads them: `null` is no text, and may become an empty one."""
    return {key: "" if value == "null" else value for key, value in values.items()}
