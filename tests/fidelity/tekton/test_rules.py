"""Tekton's rules (`support/tekton_rules.yaml`) are what Tekton's own controller does.

pytest tests/fidelity/tekton/test_rules.py -m bench
"""

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest

from fidelity.tekton.controller import Outcome, Played, TektonPlayer, tekton
from perdure.api.times import parse_duration
from perdure.importing.durations import go_duration
from perdure.simulation.script import matches_input
from support.tekton_rules import GROUPS, run_of

Json = dict[str, Any]
_PHASES: Final = {"True": "Completed", "False": "Failed"}


@dataclass(frozen=True, eq=False)
class RuleCase:
    """A case of a rule."""

    number: int
    group: Json
    case: Json

    @property
    def name(self) -> str:
        """The name of its namespace."""
        return f"rule{self.number:03}"

    @property
    def documents(self) -> list[Json]:
        """The run."""
        return [_scaled(run_of(self.group, self.case), self.scale)]

    @property
    def scale(self) -> int:
        """Return by how much all times are longer: the controller has the clock of a machine that may be slow."""
        limits = [_seconds(each) for each in _limits(run_of(self.group, self.case))]
        return _LONGER if any(0 < each < _SHORT for each in limits) else 1

    def outcome(self, task: str, values: Mapping[str, Any], attempt: int) -> Outcome:
        """Return how an attempt ends, as the simulator reads it."""
        entries: list[Json] = self.case.get("do", {}).get(task, [])
        fitting = [each for each in entries if "whenInput" in each and matches_input(dict(values), each["whenInput"])]
        fitting = fitting or [each for each in entries if "whenInput" not in each]
        entry = fitting[min(attempt, len(fitting)) - 1] if fitting else {}
        seconds = parse_duration(entry["after"]).total_seconds() if "after" in entry else 0.0
        return Outcome(
            seconds * self.scale, entry.get("exitCode", 0), entry.get("hang", False), self._results(task, entry)
        )

    def _results(self, task: str, entry: Json) -> Json:
        spec = self.documents[0]["spec"]["pipelineSpec"]
        found = next(each for field in ("tasks", "finally") for each in spec.get(field, []) if each["name"] == task)
        names = [each["name"] for each in found["taskSpec"]["results"]]
        if "output" not in entry or not names:
            return {}
        return {names[0]: entry["output"]} if len(names) == 1 else entry["output"]

    def differences(self, played: Played) -> Iterator[str]:
        """Yield what differs from what the rule says."""
        expect = self.case["expect"]
        conditions = (played.run.get("status") or {}).get("conditions") or [{}]
        phase = _PHASES.get(conditions[0].get("status", ""), "Stuck")
        yield from _differs("phase", expect.get("phase", "Completed"), phase, conditions[0].get("message", ""))
        attempts = Counter(each.task for each in played.attempts)
        yield from _differs("ran", expect.get("ran", sorted(attempts)), sorted(attempts))
        yield from _differs("attempts", {**attempts, **expect.get("attempts", {})}, dict(attempts))
        for task, inputs in expect.get("input", {}).items():
            found = [each.input for each in played.attempts if each.task == task and each.number == 1]
            yield from _differs(f"input of {task}", *(sorted(map(self._text, each)) for each in (inputs, found)))
        results = {each["name"]: each["value"] for each in (played.run.get("status") or {}).get("results") or []}
        yield from _differs("output", expect.get("output") or results, results)
        if "elapsed" in expect:
            yield from _differs("elapsed", expect["elapsed"], played.elapsed / self.scale)

    def _text(self, values: Mapping[str, Any]) -> str:
        """Return parameters as a text; a number has its text."""
        texts = {key: str(each) if isinstance(each, int) else each for key, each in values.items()}
        return json.dumps(texts, sort_keys=True)


_LONGER: Final = 30
_SHORT: Final = 120.0
"""The limits, in seconds, that pass while a slow machine does something else."""


def _seconds(text: str) -> float:
    found = go_duration(text)
    return parse_duration(found).total_seconds() if found else 0.0


def _limits(value: Any) -> Iterator[str]:
    """Yield all limits of a run."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key == "timeout" and isinstance(each, str):
                yield each
            elif key == "timeouts" and isinstance(each, dict):
                yield from each.values()
            else:
                yield from _limits(each)
    elif isinstance(value, list):
        for each in value:
            yield from _limits(each)


def _scaled(value: Any, scale: int) -> Any:
    """Return a run whose limits are longer."""
    if isinstance(value, list):
        return [_scaled(each, scale) for each in value]
    if not isinstance(value, dict):
        return value
    made = {key: _scaled(each, scale) for key, each in value.items()}
    if isinstance(made.get("timeout"), str):
        made["timeout"] = _longer(made["timeout"], scale)
    if isinstance(made.get("timeouts"), dict):
        made["timeouts"] = {key: _longer(each, scale) for key, each in made["timeouts"].items()}
    return made


def _longer(text: str, scale: int) -> str:
    return text if scale == 1 else f"{int(_seconds(text) * scale)}s"


def _differs(what: str, want: Any, found: Any, why: str = "") -> Iterator[str]:
    if want != found:
        yield f"{what}: {want} in the rule, {found} on Tekton {why}"


def cases() -> list[RuleCase]:
    """Return the cases that Tekton's controller can play: it does not report mistakes as the import does."""
    found = [(group, case) for group in GROUPS for case in group["cases"] if "reported" not in case["expect"]]
    return [RuleCase(number, *each) for number, each in enumerate(found)]


@pytest.mark.bench
@pytest.mark.timeout(3600)  # the first build of the controller takes long
@pytest.mark.skipif(shutil.which("go") is None, reason="Tekton's controller is built with Go")
def test_the_rules_are_those_of_tekton() -> None:
    with tekton() as api:
        found = {case: list(case.differences(played)) for case, played in TektonPlayer[RuleCase](api).play(cases())}
    assert len(found) >= 140
    wrong = {f"{case.group['rule']}: {case.case}": each for case, each in found.items()}
    assert all(bool(each) == ("beyond" in case.case) for case, each in found.items()), wrong
