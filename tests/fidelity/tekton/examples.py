"""The examples of Tekton Pipelines as runs that can be played, and what their tasks do.

No container runs: a task writes a text for each of its results, unless `_RESULTS` has another value, and fails if its script ends
with `exit 1`, or as `_ENDS` says.

The examples belong to the Tekton project, and have its license, Apache 2.0.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import yaml

from fidelity.tekton.controller import Outcome
from fidelity.tekton.differences import NOT_IMPORTED

Json = dict[str, Any]
_KINDS: Final = ("PipelineRun", "TaskRun", "Pipeline", "Task", "StepAction")
_EXIT: Final = re.compile(r"^\s*exit ([1-9][0-9]*)\s*$", re.MULTILINE)
_SLEEP: Final = re.compile(r"^\s*sleep ([0-9]+)s?\s*$", re.MULTILINE)
_COMMAND: Final = ["start"]
"""The command of steps that have none: the controller would look for it in a registry."""

NOT_PLAYED: Final[Mapping[str, str]] = {}
"""Examples whose outcome depends on more than Tekton's controller, and on what."""

_LISTS: Final = ["abc.dev/notsofamousimage/image", "ubuntu", "xyz.dev/awesomeness/awesomeness"]
_RESULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "pipelineruns/alpha/pipelinerun-with-cel-when-expressions.yaml/check-file": {"exists": "yes"},
    "pipelineruns/beta/pipeline-with-when-expressions-using-array-results.yaml/task1": {"array-results-1": _LISTS},
    "pipelineruns/beta/pipelinerun-with-matrix-and-results.yaml/get-browsers-and-url": {
        "browsers": ["chrome", "safari", "firefox"]
    },
    "pipelineruns/beta/pipelinerun-with-matrix-and-results.yaml/get-platforms": {
        "platforms": ["linux", "mac", "windows"]
    },
    "pipelineruns/pipelinerun-array-results-substitution.yaml/task1": {"array-results-1": _LISTS},
    "pipelineruns/pipelinerun-with-when-expressions.yaml/check-file": {"exists": "yes"},
}
"""The results of tasks that others need to be certain values, by the names of the example and of the task."""
_ENDS: Final[Mapping[str, Sequence[int]]] = {
    "pipelineruns/beta/pipelinerun-with-matrix.yaml/matrix-with-task-retries": (1, 0),
    "pipelineruns/beta/using-retries-and-retry-count-variables.yaml/retry-me": (1, 0),
}
"""The exit codes of the attempts of tasks whose programs decide, by the names of the example and of the task."""


@dataclass(frozen=True)
class Example:
    """A file of the examples."""

    name: str
    documents: Sequence[Json]
    """Its objects of Tekton."""


@dataclass(frozen=True, eq=False)
class ExampleCase:
    """A run of an example, and what its tasks do."""

    example: Example
    index: int
    """Which of its documents it is."""

    @cached_property
    def name(self) -> str:
        """The name of its namespace."""
        base = re.sub("[^a-z0-9]+", "-", self.example.name.removesuffix(".yaml").lower())
        return f"{base[-58:].strip('-')}-{self.index}"

    @cached_property
    def documents(self) -> list[Json]:
        """The run, with a name, and the objects of its file to which it can refer, as they are played."""
        document = self.example.documents[self.index]
        metadata = document.get("metadata") or {}
        name = metadata.get("name") or f"{metadata['generateName']}run"
        run = {**document, "metadata": {**metadata, "name": name}}
        rest = [each for each in self.example.documents if each["kind"] not in {"PipelineRun", "TaskRun"}]
        return [_playable(each) for each in (run, *rest)]

    def outcome(self, task: str, values: Mapping[str, Any], attempt: int) -> Outcome:
        """Return how an attempt ends.

        Args:
            task: The name of the task in its pipeline.
            values: Its parameters, on which nothing depends.
            attempt: Its number, from 1.
        """
        del values
        key, spec = f"{self.example.name}/{task}", self._specs.get(task, {})
        steps = [each for each in spec.get("steps") or [] if each.get("onError", "stopAndFail") == "stopAndFail"]
        scripts = [str(each.get("script") or "") for each in steps]
        ended = [found for script in scripts if "if " not in script and (found := _EXIT.search(script))]
        codes = _ENDS.get(key) or [int(ended[0][1]) if ended else 0]
        slept = sum(int(found[1]) for script in scripts for found in _SLEEP.finditer(script))
        special = _RESULTS.get(key, {})
        results = {each["name"]: special.get(each["name"], _value(each)) for each in spec.get("results") or []}
        code = codes[min(attempt, len(codes)) - 1]
        return Outcome(slept, code, results={} if code else results)

    @cached_property
    def tasks(self) -> list[str]:
        """The names of its tasks in their pipelines."""
        return list(self._specs)

    def declared(self, task: str) -> frozenset[str]:
        """Return the parameters that a task declares."""
        return frozenset(each["name"] for each in self._specs.get(task, {}).get("params") or [])

    @cached_property
    def _specs(self) -> dict[str, Json]:
        run = self.documents[0]
        named = {each["metadata"]["name"]: each.get("spec") or {} for each in self.documents if each["kind"] == "Task"}
        if run["kind"] == "TaskRun":
            return {run["metadata"]["name"]: _spec(run["spec"], named)}
        return {each["name"]: _spec(each, named) for each in _tasks(self.documents)}


def _spec(of: Json, named: Mapping[str, Json]) -> Json:
    """Return the spec of a task, or that of the one to which it refers."""
    found: Json = of.get("taskSpec") or named.get(str((of.get("taskRef") or {}).get("name")), {})
    return found


def _tasks(value: Any) -> Iterator[Json]:
    """Yield the tasks of all pipelines in a value."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key in {"tasks", "finally"} and isinstance(each, list):
                yield from (one for one in each if isinstance(one, dict) and "name" in one)
            yield from _tasks(each)
    elif isinstance(value, list):
        for each in value:
            yield from _tasks(each)


def _value(result: Json) -> Any:
    """Return what a task writes for a result."""
    name = result["name"]
    match result.get("type") or ("object" if result.get("properties") else "string"):
        case "array":
            return [f"{name}-0", f"{name}-1"]
        case "object":
            return {key: f"{name}-{key}" for key in result.get("properties") or {}}
    return f"{name}-value"


def _playable(value: Any) -> Any:
    """Return a part of an object, with a command for each step that has none."""
    if isinstance(value, list):
        return [_playable(each) for each in value]
    if not isinstance(value, dict):
        return value
    made = {key: _playable(each) for key, each in value.items()}
    for each in (*(made.get("steps") or []), *(made.get("sidecars") or [])):
        if isinstance(each, dict):
            each.setdefault("name", "")  # as Tekton's webhook writes it
        if isinstance(each, dict) and not each.keys() & {"command", "script", "ref"}:
            each["command"] = _COMMAND
    if made.get("kind") == "StepAction" and not made["spec"].keys() & {"command", "script"}:
        made["spec"]["command"] = _COMMAND
    return made


def read(folder: Path) -> list[Example]:
    """Read the examples of a folder that have objects of Tekton."""
    found = []
    for file in sorted(folder.rglob("*.yaml")):
        documents = [each for each in yaml.safe_load_all(file.read_text("utf-8")) if isinstance(each, dict)]
        kept = [each for each in documents if each.get("kind") in _KINDS]
        if any(each["kind"] in {"PipelineRun", "TaskRun"} for each in kept):
            found.append(Example(str(file.relative_to(folder)), kept))
    return found


def runs(example: Example) -> Iterator[ExampleCase]:
    """Yield the runs of an example."""
    for i, each in enumerate(example.documents):
        if each["kind"] in {"PipelineRun", "TaskRun"}:
            yield ExampleCase(example, i)


def cases(examples: Sequence[Example]) -> Iterator[ExampleCase]:
    """Yield the runs of examples that can be imported and played."""
    for example in examples:
        if example.name not in {*NOT_PLAYED, *NOT_IMPORTED}:
            yield from runs(example)
