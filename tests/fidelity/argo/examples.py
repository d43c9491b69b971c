"""The examples of Argo Workflows as workflows that can be played, and what their containers do.

No container runs, so `_PRINTED`, `_WRITTEN`, and `_ends` say what the programs of the examples print and write, and how they end;
where a program decides at random, the seed does.

The examples belong to the Argo Workflows project, and have its license, Apache 2.0.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from fidelity.argo.controller import Outcome
from fidelity.argo.observed import digest, normal

Json = dict[str, Any]
SEEDS: Final = range(1)
"""The runs of each example. In the first one, containers end as they are written; in others, some fail."""
_FAILING: Final = 0.25
"""The share of attempts that fail in the other runs."""
_NAME: Final = 50
"""The maximum number of characters of a name, without numbers."""
_SHARED: Final = frozenset({"WorkflowTemplate", "ClusterWorkflowTemplate", "ConfigMap"})
_STARTED: Final = frozenset({"Workflow", "CronWorkflow", "WorkflowTemplate", "ClusterWorkflowTemplate"})

NOT_PLAYED: Final = {
    "artifact-passing-explicit-plugin.yaml": "a plugin for artifacts",
    "synchronization-db-mutex-tmpl-level.yaml": "a database of Argo's controller",
    "synchronization-db-mutex-wf-level.yaml": "a database of Argo's controller",
    "synchronization-db-tmpl-level.yaml": "a database of Argo's controller",
    "synchronization-db-wf-level.yaml": "a database of Argo's controller",
}
"""Examples whose outcome depends on more than Argo's controller, and on what."""

_GIVEN: Final = {"workflow-event-binding/event-consumer-workflowtemplate.yaml": ("appellation",)}
"""Parameters that a user gives although the template does not declare them."""
_SEMAPHORES: Final[Json] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "my-config"},
    "data": {"workflow": "1", "template": "2"},
}
"""What the comments in the examples of semaphores tell users to create."""
_REPOSITORIES: Final[Json] = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {
        "name": "artifact-repositories",
        "annotations": {"workflows.argoproj.io/default-artifact-repository": "my-key"},
    },
    "data": {"my-key": json.dumps({"s3": {"bucket": "artifacts", "endpoint": "store:9000"}})},
}
"""The artifact repositories to which examples refer."""


@dataclass(frozen=True)
class Example:
    """A file of the examples."""

    name: str
    documents: Sequence[Json]


@dataclass(frozen=True)
class ExampleCase:
    """A workflow of an example, and what its containers do."""

    example: Example
    index: int
    """Which document it is."""
    seed: int
    others: Sequence[Json]
    """The objects that the examples share."""

    @property
    def _document(self) -> Json:
        return self.example.documents[self.index]

    @cached_property
    def name(self) -> str:
        """The name of the workflow."""
        base = self.example.name.removesuffix(".yaml").replace("/", "-").lower()
        if len(base) > _NAME:
            base = f"{base[: _NAME - 7]}-{digest(base)[:6]}"
        return f"{base}-{self.index}-{self.seed}"

    @cached_property
    def manifest(self) -> Json:
        """The Workflow that a user submits, for a template or a CronWorkflow, too."""
        document = self._document
        metadata = {key: document["metadata"][key] for key in ("labels", "annotations") if key in document["metadata"]}
        labels = {name: value.rstrip("-") for name, value in metadata.get("labels", {}).items()}  # one is not valid
        metadata = {**metadata, **({"labels": labels} if labels else {}), "name": self.name}
        spec = document["spec"]
        if document["kind"] == "CronWorkflow":
            spec = spec["workflowSpec"]
            scheduled = {"workflows.argoproj.io/scheduled-time": "2026-01-01T00:00:00Z"}
            metadata = {**metadata, "annotations": {**metadata.get("annotations", {}), **scheduled}}
        if "Template" in document["kind"]:
            scope = {"clusterScope": True} if document["kind"].startswith("Cluster") else {}
            arguments = {"parameters": [{"name": each, "value": "given"} for each in self._missing]}
            reference = {"workflowTemplateRef": {"name": document["metadata"]["name"], **scope}}
            spec = {**reference, **({"arguments": arguments} if self._missing else {})}
        return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec}

    @property
    def _missing(self) -> list[str]:
        """The parameters that the user has to give."""
        spec = self._document["spec"]
        entry: Json = next((each for each in spec["templates"] if each["name"] == spec.get("entrypoint")), {})
        declared = (spec.get("arguments") or {}).get("parameters") or []
        valued = {each["name"] for each in declared if each.keys() & {"value", "valueFrom", "default"}}
        inputs = (entry.get("inputs") or {}).get("parameters") or []
        wanted = [each["name"] for each in (*inputs, *declared) if not each.keys() & {"value", "valueFrom", "default"}]
        return [*(each for each in dict.fromkeys(wanted) if each not in valued), *_GIVEN.get(self.example.name, ())]

    @cached_property
    def documents(self) -> list[Json]:
        """The Workflow, and the shared objects that it refers to, directly or indirectly."""
        found = [self.manifest]
        for each in found:
            wanted = set(_references(each))
            found += [other for other in self.others if other not in found and _identity(other) in wanted]
        return found

    @property
    def imported(self) -> list[Json]:
        """What is imported: the same, with the CronWorkflow itself, if it is one."""
        if self._document["kind"] != "CronWorkflow":
            return self.documents
        metadata = {**self._document["metadata"], "name": self.name}
        return [{**self._document, "metadata": metadata}, *self.documents[1:]]

    def scenario(self, manifests: Sequence[Json]) -> Json:
        """Return what happens while the imported manifests are simulated: users send signals, and time starts a Schedule."""
        names = [name for each in manifests for name in _signals(each)]
        files = {name: dict(self.outcome(name, {}, 1).files) for name in names}
        sent = [{"name": name, "input": value} if value else {"name": name} for name, value in files.items()]
        named = {"schedule": {"name": self.name}} if self._document["kind"] == "CronWorkflow" else {}
        return {**({"signals": sent} if sent else {}), **named}

    def outcome(self, template: str, values: Mapping[str, str], attempt: int) -> Outcome:
        """Return how an attempt ends.

        Args:
            template: The name of the template.
            values: Its input parameters.
            attempt: Its number, from 1.
        """
        key = json.dumps({name: normal(value) for name, value in values.items()}, sort_keys=True)
        random = Random(f"{self.seed}/{self.example.name}/{template}/{key}/{attempt}")
        data = self._templates.get(template, {})
        milliseconds, code = _ends(data, values, random)
        if self.seed and random.random() < _FAILING:
            code = random.choice((1, 2, 3))
        if code or milliseconds is None:
            return Outcome(milliseconds or 0, code, hangs=milliseconds is None)
        short = self.example.name.rpartition("/")[2]
        printed = _PRINTED.get(f"{short}/{template}") or _PRINTED.get(template)
        written = _WRITTEN.get(f"{short}/{template}") or _WRITTEN.get(template)
        return Outcome(
            milliseconds,
            printed=printed(values, random) if printed else None,
            files=written(values, random) if written else {},
        )

    @cached_property
    def _templates(self) -> dict[str, Json]:
        return {
            each["name"]: each
            for document in self.documents
            for each in (document.get("spec") or {}).get("templates") or []
        }


def _identity(document: Json) -> tuple[str, str]:
    return str(document["kind"]), str(document["metadata"]["name"])


def _references(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the kinds and names of the objects that a value refers to."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key in {"templateRef", "workflowTemplateRef"}:
                yield "ClusterWorkflowTemplate" if each.get("clusterScope") else "WorkflowTemplate", each["name"]
            elif key in {"configMapKeyRef", "artifactRepositoryRef"}:
                yield "ConfigMap", each.get("name") or each.get("configMap") or _REPOSITORIES["metadata"]["name"]
            else:
                yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)


def _signals(value: Any) -> Iterator[str]:
    """Yield the signals that steps wait for."""
    if isinstance(value, dict):
        if "waitForSignal" in value:
            yield value["waitForSignal"]["name"]
        for each in value.values():
            yield from _signals(each)
    elif isinstance(value, list):
        for each in value:
            yield from _signals(each)


_EXITS: Final = re.compile(r"\bexit (\{\{inputs\.parameters\.([-\w]+)\}\}|\d+)\s*$")
_CHOSEN: Final = re.compile(r"exit_code = random\.choice\((range\(0, 5\)|\[[\d, ]+\])\)")
_SLEEPS: Final = re.compile(r"sleep (\d+)(s|m|h|d)?\b|sleep (1d)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST: Final = 3600


def _ends(template: Json, values: Mapping[str, str], random: Random) -> tuple[int | None, int]:
    """Return how long a container runs, in milliseconds, and its exit code; None if it does not end by itself in time."""
    work = template.get("container") or template.get("script") or {}
    words = [*work.get("command", []), *work.get("args", []), work.get("source", "")]
    text = " ".join(map(str, words)).strip()
    milliseconds = random.randrange(100, 3_000)
    slept = _SLEEPS.search(text)
    if slept:
        seconds = int(slept[1]) * _SECONDS[slept[2] or "s"]
        if seconds > _LONGEST:
            return None, 0
        milliseconds = seconds * 1000
    if template.get("nodeSelector", {}).get("beta.kubernetes.io/arch") == "no-such-arch":
        return None, 0
    chosen = _CHOSEN.search(text)
    if chosen:
        return milliseconds, random.choice(range(5) if "range" in chosen[1] else json.loads(chosen[1]))
    ends = _EXITS.search(text)
    return milliseconds, int(values.get(ends[2], "0") if ends[2] else ends[1]) if ends else 0


_Prints = Callable[[Mapping[str, str], Random], str]
_Writes = Callable[[Mapping[str, str], Random], Mapping[str, str]]


def _one_of(*texts: str) -> _Prints:
    return lambda _, random: random.choice(texts)


def _files(**values: str) -> _Writes:
    return lambda *_: {name.replace("_", "-"): value for name, value in values.items()}


_HALF: Final[_Prints] = lambda values, _: str(int(values["num"]) // 2)  # noqa: E731 - a column of a table
_PRINTED: Final[dict[str, _Prints]] = {
    "conditional-parameters.yaml/heads": _one_of("heads"),
    "conditional-parameters.yaml/tails": _one_of("tails"),
    "counter-iteration": lambda values, _: str(int(values["counter"]) + 1),
    "dag-conditional-parameters.yaml/heads": _one_of("heads"),
    "dag-conditional-parameters.yaml/tails": _one_of("tails"),
    "divide-by-2": _HALF,
    "flip-coin": _one_of("heads", "tails"),
    "gen-number-list": _one_of(json.dumps(list(range(20, 31)))),
    "gen-random-int": _one_of("7", "42"),
    "outputs-result-workflow.yaml/group": _one_of("hi"),
    "parameter-aggregation-script.yaml/odd-or-even": lambda values, _: json.dumps(
        {"num": int(values["num"]), "evenness": "odd" if int(values["num"]) % 2 else "even"}
    ),
    "safe-to-retry": _one_of("true"),
    "split": lambda values, _: json.dumps([str(each) for each in range(int(values["numParts"]))]),
    "withsequence-nested-result.yaml/hello": _one_of("0", "1", "2", "3"),
}
"""What containers print whose stdout is read, by their templates, or by example and template."""
_WRITTEN: Final[dict[str, _Writes]] = {
    "approval": _files(approve="YES"),
    "approve": _files(message="go on"),
    "create-wf": _files(wf_name="made"),
    "generate": _files(out_parameter="my-output-parameter"),
    "get-items": _files(count="3"),
    "global-output": _files(hello_param="hello world"),
    "head-lines": _files(actual_lines_count="3"),
    "hello-world-to-file": _files(hello_param="hello world"),
    "odd-or-even": lambda values, _: {
        "num": values["num"],
        "evenness": "odd" if int(values["num"]) % 2 else "even",
    },
    "output": _files(result="hello world"),
    "parse-resources-tmpl": _files(resources='{"memory": "10Gi", "cpu": "2000m"}'),
    "pod-0": _files(output="hello"),
    "rand-num": lambda *_: {"job-name": "rand-num-1", "job-obj": '{"kind": "Job"}'},
    "random-int": _files(rand_int_value="7"),
    "random-number-job": _files(job_name="rand-num-1", job_uid="uid-1"),
    "workspace-workflow.yaml/main": _files(out="hi"),
    "world-to-file": _files(hello="world"),
}
"""The values of output parameters, by the same names. A task that is suspended gets them from the user who resumes it."""


def read(folder: Path) -> list[Example]:
    """Read the examples of a folder that have objects of Argo."""
    found = []
    for file in sorted(folder.rglob("*.yaml")):
        documents = [each for each in yaml.load_all(file.read_text("utf-8"), Loader=_Loader) if isinstance(each, dict)]
        if any(each.get("kind") in _STARTED | _SHARED for each in documents):
            found.append(Example(str(file.relative_to(folder)), documents))
    return found


class _Loader(yaml.SafeLoader):
    """Reads dates as texts, as JSON has them."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in of if tag != "tag:yaml.org,2002:timestamp"]
    for first, of in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def objects(examples: Sequence[Example]) -> list[Json]:
    """Return the objects to which workflows of any file refer."""
    found: dict[str, Json] = {}
    for each in (_SEMAPHORES, _REPOSITORIES, *(each for example in examples for each in example.documents)):
        if each.get("kind") in _SHARED:
            found.setdefault(f"{each['kind']}/{each['metadata']['name']}", each)
    return list(found.values())


def cases(examples: Sequence[Example]) -> Iterator[ExampleCase]:
    """Yield the workflows of examples that can be played, each once for each seed."""
    others = objects(examples)
    for example in examples:
        for i, each in enumerate(example.documents):
            if example.name not in NOT_PLAYED and each.get("kind") in _STARTED and _starts(each):
                yield from (ExampleCase(example, i, seed, others) for seed in SEEDS)


def _starts(document: Json) -> bool:
    """Whether a user can start an object: a template needs an entrypoint."""
    return "Template" not in document["kind"] or bool(document["spec"].get("entrypoint"))
