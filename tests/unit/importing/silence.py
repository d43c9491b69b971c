"""Each field of the foreign schemas, fed to the importers: it changes the result, or is reported, or may be silent for a reason.

The figures are printed by

    PYTHONPATH=operator:tests .venv/bin/python -m unit.importing.silence
"""

import copy
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from perdure.importing import schedules
from perdure.importing.argo import manifests as argo_
from perdure.importing.reader import ConvertedObject, UnsupportedScheduleError
from perdure.importing.schemas import Schema
from perdure.importing.tekton import manifests as tekton_

Json = dict[str, Any]
Convert = Callable[[list[Json]], list[ConvertedObject]]
Path = tuple[str | int, ...]

STEP: Final = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: made}
spec:
  entrypoint: main
  arguments:
    parameters: [{name: given, value: x}]
    artifacts: [{name: file, raw: {data: x}}]
  volumes: [{name: v, emptyDir: {}}]
  volumeClaimTemplates: [{metadata: {name: w}, spec: {}}]
  templates:
  - %s
  - name: main
    steps:
    - - {name: step, template: fed, arguments: {parameters: [{name: p, value: x}], artifacts: [{name: a, raw: {data: x}}]}}
      - {name: other, template: other}
  - {name: other, container: {image: i}}
"""
TEMPLATES: Final = {
    "container": """name: fed
    inputs: {parameters: [{name: p}], artifacts: [{name: a, path: /in/a}]}
    outputs: {parameters: [{name: o, valueFrom: {path: /o}}], artifacts: [{name: z, path: /out/z}]}
    container:
      image: i
      command: [c]
      volumeMounts: [{name: v, mountPath: /v}, {name: w, mountPath: /w}, {name: own, mountPath: /own}]
    initContainers: [{name: first, image: i}]
    sidecars: [{name: beside, image: i}]
    volumes: [{name: own, emptyDir: {}}]""",
    "script": "{name: fed, script: {image: i, command: [sh], source: x}}",
    "containerSet": "{name: fed, containerSet: {containers: [{name: main, image: i, command: [c]}]}}",
    "http": '{name: fed, http: {url: "http://x"}}',
    "resource": """name: fed
    outputs: {parameters: [{name: o, valueFrom: {jsonPath: "{.a}"}}]}
    resource: {action: patch, manifest: "{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}"}""",
    "suspend": "{name: fed, suspend: {}}",
    "daemon": "{name: fed, daemon: true, container: {image: i, command: [c]}}",
    "steps": """name: fed
    inputs: {parameters: [{name: p}], artifacts: [{name: a}]}
    outputs:
      parameters: [{name: o, valueFrom: {parameter: "{{inputs.parameters.p}}"}}]
      artifacts: [{name: z, from: "{{inputs.artifacts.a}}"}]
    steps: [[{name: s, template: other}, {name: t, template: other}]]""",
    "dag": """name: fed
    inputs: {parameters: [{name: p}], artifacts: [{name: a}]}
    dag: {failFast: false, tasks: [{name: s, template: other}, {name: t, template: other}]}""",
}
"""A template of each kind."""
WORK: Final = frozenset({*TEMPLATES, "data", "plugin"}) - {"daemon"}
"""The fields of the kinds of work; a template has one."""
PODS: Final = frozenset(
    {"affinity", "container", "dnsConfig", "env", "initContainers", "securityContext", "sidecars", "volumes"}
)
"""Fields whose own fields are only fed for one kind of template: they are converted as a whole."""
CRON: Final = """
apiVersion: argoproj.io/v1alpha1
kind: CronWorkflow
metadata: {name: made}
spec:
  schedules: ["* * * * *"]
  workflowSpec:
    entrypoint: main
    templates: [{name: main, container: {image: i}}]
"""
RUN: Final = """
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {name: made}
spec:
  params: [{name: p, value: x}]
  workspaces: [{name: w, emptyDir: {}}]
  taskRunSpecs: [{pipelineTaskName: t}]
  pipelineSpec:
    params: [{name: p}]
    workspaces: [{name: w}]
    results: [{name: r, value: $(tasks.t.results.r)}]
    tasks:
    - name: t
      params: [{name: p, value: $(params.p)}]
      workspaces: [{name: w}]
      taskSpec:
        params: [{name: p}]
        workspaces: [{name: w}]
        results: [{name: r}]
        volumes: [{name: v, emptyDir: {}}]
        sidecars: [{name: beside, image: i, command: [c]}]
        steps: [{name: s, image: i, command: [c], when: [{input: a, operator: in, values: [b]}]}]
    finally:
    - {name: f, taskSpec: {steps: [{name: s, image: i, command: [c], when: [{input: a, operator: in, values: [b]}]}]}}
"""
NESTED: Final = """
apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {name: made}
spec:
  pipelineSpec:
    tasks:
    - name: n
      pipelineSpec:
        params: [{name: p, default: d}]
        results: [{name: r, value: $(tasks.t.results.r)}]
        tasks:
        - name: t
          params: [{name: p, value: $(params.p)}]
          taskSpec: {params: [{name: p}], results: [{name: r}], steps: [{name: s, image: i, command: [c]}]}
        finally:
        - {name: f, taskSpec: {steps: [{name: s, image: i, command: [c]}]}}
    - {name: after, taskSpec: {steps: [{name: s, image: i, command: [c]}]}}
"""
REFERENCE: Final = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: made}
spec: {workflowTemplateRef: {name: library}}
"""
CRON_REFERENCE: Final = """
apiVersion: argoproj.io/v1alpha1
kind: CronWorkflow
metadata: {name: made}
spec:
  schedules: ["* * * * *"]
  workflowSpec: {workflowTemplateRef: {name: library}}
"""
TEMPLATE: Final = """
apiVersion: argoproj.io/v1alpha1
kind: %s
metadata: {name: library}
spec:
  %s
  templates: [{name: main, container: {image: i, command: [c]}}]
"""
LIBRARY: Final = TEMPLATE % ("WorkflowTemplate", "entrypoint: main")
CRON_JOB: Final = """
apiVersion: batch/v1
kind: CronJob
metadata: {name: made}
spec:
  schedule: "* * * * *"
  jobTemplate: {spec: {template: {spec: {containers: [{name: c, image: i}]}}}}
"""
TASK_RUN: Final = """
apiVersion: tekton.dev/v1
kind: TaskRun
metadata: {name: made}
spec:
  params: [{name: p, value: x}]
  workspaces: [{name: w, emptyDir: {}}]
  taskSpec:
    params: [{name: p}]
    workspaces: [{name: w}]
    steps: [{name: s, image: i, command: [c], when: [{input: a, operator: in, values: [b]}]}]
"""
_DEEPEST: Final = 9
"""How deep fields are fed: those below are parts of pods, which are copied as they are."""
_OUTER: Final = re.compile(
    r"|spec|spec\.(pipelineSpec|taskSpec)|spec\.templates\[[0-9]+\]|.*\.tasks\[[0-9]+\](\.taskSpec)?"
)
"""What has a message of its own covers none of its fields."""
VALUES: Final[Json] = {
    "strategy": "OnWorkflowCompletion",
    "onError": "continue",
    "startingDeadlineSeconds": 70,
    "concurrencyPolicy": "Replace",
    "retryPolicy": "OnError",
    "mergeStrategy": "json",
    "restartPolicy": "Always",
    "completionMode": "Indexed",
    "timeZone": "Europe/Berlin",
    "timezone": "Europe/Berlin",
}
"""Values of fields that have few."""


def sample(schema: Schema, shape: Any, depth: int = 3) -> Any:
    """Return a value of a shape; of an object, with all fields down to a depth."""
    if isinstance(shape, list):
        return [sample(schema, shape[0], depth)]
    if isinstance(shape, dict):
        return {"sample": sample(schema, shape["*"], depth)}
    if isinstance(shape, int):
        fields = schema.fields(shape) if depth else {}
        return {name: VALUES.get(name, sample(schema, each, depth - 1)) for name, each in fields.items()}
    return {"integer": 7, "number": 7, "boolean": True, "int-or-string": 7, "object": {"x": "y"}}.get(shape, "7s")


def with_field(document: Json, path: Path, value: Any) -> tuple[Json, Json]:
    """Return a document without and with the value of a field."""
    made: Json = copy.deepcopy(document)
    target: Any = made
    for i, name in enumerate(path[:-1]):
        empty: Any = [] if isinstance(path[i + 1], int) else {}
        if isinstance(name, int):
            if len(target) <= name:
                target.append(empty)
            target = target[name]
        else:
            if not isinstance(target.get(name), type(empty)):
                target[name] = empty
            target = target[name]
    last = path[-1]
    without = copy.deepcopy(made)
    target[last] = value
    return without, made


@dataclass(frozen=True)
class Outcome:
    """All that a user gets of a conversion."""

    manifests: str
    remarks: tuple[str, ...]
    paths: tuple[str, ...]
    """The paths of what is reported."""


def outcome(convert: Convert, documents: list[Json]) -> Outcome:
    """Convert documents."""
    made = convert(copy.deepcopy(documents))
    reported = [one for each in made for one in (*each.report.gaps, *each.report.notes)]
    manifests = json.dumps([each.manifests for each in made], default=str)
    return Outcome(manifests, tuple(sorted(map(str, reported))), tuple(each.path for each in reported))


def scheduled(documents: list[Json]) -> list[ConvertedObject]:
    """Convert a document as `perdure schedule import` does, which rejects what it cannot convert."""
    done = ConvertedObject("the document")
    try:
        done.manifests = schedules.convert(documents[0], "")
    except UnsupportedScheduleError as error:
        path, message = str(error).removeprefix(": ").split(": ", 1)
        done.report.gap(path, message)
    return [done]


class Jobs(Schema):
    """The fields of a CronJob (kubernetes/kubernetes: pkg/apis/batch/types.go), without those below its pods."""

    _FIELDS: Final[tuple[Json, ...]] = (
        {"apiVersion": "string", "kind": "string", "metadata": 4, "spec": 1, "status": "object"},
        {
            "schedule": "string",
            "timeZone": "string",
            "startingDeadlineSeconds": "integer",
            "suspend": "boolean",
            "concurrencyPolicy": "string",
            "jobTemplate": 2,
            "successfulJobsHistoryLimit": "integer",
            "failedJobsHistoryLimit": "integer",
        },
        {"metadata": 4, "spec": 3},
        {
            "parallelism": "integer",
            "completions": "integer",
            "activeDeadlineSeconds": "integer",
            "podFailurePolicy": "object",
            "successPolicy": "object",
            "backoffLimit": "integer",
            "backoffLimitPerIndex": "integer",
            "maxFailedIndexes": "integer",
            "selector": "object",
            "manualSelector": "boolean",
            "template": 5,
            "ttlSecondsAfterFinished": "integer",
            "completionMode": "string",
            "suspend": "boolean",
            "podReplacementPolicy": "string",
            "managedBy": "string",
        },
        {
            "labels": {"*": "string"},
            "annotations": {"*": "string"},
            "finalizers": ["string"],
            "ownerReferences": "object",
        },
        {"metadata": 4, "spec": 6},
        {
            "restartPolicy": "string",
            "serviceAccountName": "string",
            "nodeSelector": {"*": "string"},
            "activeDeadlineSeconds": "integer",
            "terminationGracePeriodSeconds": "integer",
            "hostname": "string",
            "initContainers": "object",
            "volumes": "object",
            "securityContext": "object",
            "tolerations": "object",
        },
    )

    def __init__(self) -> None:
        super().__init__("cronjob")

    @property
    def kinds(self) -> dict[str, int]:
        return {"CronJob": 0}

    def fields(self, number: int) -> Json:
        return self._FIELDS[number]


class Feeder:
    """Feeds each field of a kind to a conversion."""

    def __init__(self, of: "Feed") -> None:
        """`of`: the fields."""
        self._opaque = of.opaque
        self._schema: Schema = Jobs() if of.system == "cronjob" else Schema(of.system)
        self._convert = scheduled if of.by_schedule else (tekton_ if of.system == "tekton" else argo_).convert
        self._document: Json = yaml.safe_load(of.document)
        self._others: list[Json] = [yaml.safe_load(each) for each in of.others]
        self._visited: set[tuple[Any, ...]] = set()
        self.fed = 0
        self.reported = 0
        self.imported = 0
        """The fields that change the manifests without a remark."""

    def silent(self, start: Path = (), skip: frozenset[str] = frozenset()) -> Iterator[str]:
        """Yield the paths of the fields whose value changes nothing, and is not reported.

        Args:
            start: Where to start.
            skip: Fields directly below it that are not fed.
        """
        shape: Any = self._schema.kinds[self._document["kind"]]
        value: Any = self._document
        for name in start:
            shape = shape[0] if isinstance(name, int) else self._schema.fields(shape)[name]
            value = value[name]
        yield from self._below(shape, value, start, skip)

    def _below(self, shape: Any, value: Any, path: Path, skip: frozenset[str]) -> Iterator[str]:
        if isinstance(shape, list):
            yield from self._below(shape[0], value[0] if value else None, (*path, 0), skip)
        if not isinstance(shape, int):
            return
        # A type is fed once below the same two names; its fields follow their place there.
        key = (shape, *[each for each in path if isinstance(each, str)][-2:])
        if key in self._visited:
            return
        self._visited.add(key)
        for name, each in self._schema.fields(shape).items():
            where = (*path, name)
            if name in skip or name == "inline" or (where[0] == "metadata" and self._schema.system != "cronjob"):
                continue
            inner = value.get(name) if isinstance(value, dict) else None
            if not inner and self._is_silent(where, each):
                yield ".".join("*" if isinstance(part, int) else part for part in where)
            elif name not in self._opaque and len(where) < _DEEPEST:
                yield from self._below(each, inner, where, frozenset())

    def _is_silent(self, path: Path, shape: Any) -> bool:
        value = VALUES.get(str(path[-1]), sample(self._schema, shape))
        without, made = with_field(self._document, path, value)
        self.fed += 1
        before, after = (outcome(self._convert, [each, *self._others]) for each in (without, made))
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)[1:]
        wholes = [
            each for each in after.paths if where.startswith((f"{each}.", f"{each}[")) and not _OUTER.fullmatch(each)
        ]
        if wholes or before.remarks != after.remarks:
            self.reported += 1
            return False
        self.imported += before.manifests != after.manifests
        return before.manifests == after.manifests


NO_EFFECT: Final = {
    # What an API server or a controller writes.
    r"status|.*\.status|.*volumeClaimTemplate\.status\..*": "the state of an object that has run",
    r".*volumeClaimTemplates\.\*\.(apiVersion|kind)": "of the object that the field describes",
    r".*\.artifacts\.\*\.deleted": "the state of an artifact",
    # What only people read.
    r".*\.(description|displayName)": "documentation",
    r"spec\.templates\.\*\.annotations": "documentation, which Argo's UI shows",
    r".*(arguments|taskSpec)\..*\.(enum|properties)": "values that Argo's UI offers; a run of Tekton is checked against them",
    r".*\.inputs\.parameters": "the UI shows the inputs of a template that suspends",
    r".*\.results\.\*\.properties": "documentation of the fields of a result",
    r".*pipelineSpec\.(params\.\*\.properties|results\.\*\.type)": "values have the types that they have in the run",
    # Another field decides.
    r".*arguments\.parameters\.\*\.(default|valueFrom)(\..*)?": "the value of the argument decides",
    r".*inputs\.parameters\.\*\.(default|value|valueFrom)(\..*)?": "the argument of the caller decides",
    r".*arguments\.artifacts\.\*\.(mode|recurseMode|optional|path|artifactGC)": "those of the input of the template decide",
    r".*arguments\.artifacts\.\*\.archive": "text is not packed",
    r".*params\.\*\.(default|type)": "the value of the run decides",
    r".*\.stepTemplate\.(image|command)": "that of the step decides",
    r"spec\.(params\.\*\.properties@(pipeline|task)|results\.\*\.type@pipeline)": "in the same way",
    r"spec\.schedule": "`schedules` decides",
    # The other system reads them elsewhere only.
    r".*(inputs|arguments)\.(parameters|artifacts)\.\*\.(globalName|archiveLogs)": "only outputs have one",
    r".*(in|out)puts\.artifacts\.\*\.(path|mode|recurseMode|archive|artifactGC|optional)@(steps|dag)": "pods have files",
    r".*outputs\.artifacts\.\*\.(mode|recurseMode)": "only inputs have modes",
    r"spec\.templates\.\*\.(affinity|nodeSelector|serviceAccountName|tolerations)@(steps|dag)": "only pods have them",
    r"spec\.templates\.\*\.(parallelism|failFast)@(?!steps|dag).*": "only steps have them",
    r".*\.continueOn\.error": "only a container that must write outputs can have the status Error",
    r"spec\.templates\.\*\.dag\.failFast": "Argo's controller starts all tasks whose dependencies permit it in any case",
    r".*\.(parallelism|volumes|volumeClaimGC(\.strategy)?)@(one|library)": "one container, which mounts nothing",
    r".*\.singleBranch": "only with `branch`",
    r".*\.withSequence\.(start|format)": "only with `count` or `end`",
    r".*\.insecureIgnoreHostKey": "only for SSH, which is reported",
    r".*\.volumes@(script|containerSet|daemon)": "a volume that no container mounts",
    r"spec\.tasks\.\*\.workspaces\.\*\.subPath@pipeline": "nothing binds the workspace, which is reported",
    r".*\.(workspaces\.\*\.optional|workspaces)": "an optional workspace that nothing binds",
    r".*volumeClaimTemplate\.(apiVersion|kind|metadata\.(name|generateName|namespace))": "the workspace names the claim",
    r".*params\.\*\.name": "a name for those that read it",
    r".*puts\.parameters\.\*\.name": "a name for those that read it",
    r".*arguments\.parameters\.\*\.(name|value)": "an argument that the template does not declare, which Argo ignores",
    r".*outputs\.parameters\.\*\.enum@suspend": "values that Argo's UI offers",
    r".*\.matrix\.include\.\*\.name": "documentation",
    r".*\.steps\.\*\.results": "a file for those that read it",
    r".*(pipeline|task)Ref\.(kind|params)": "only with a resolver",
    # Perdure has nothing that these fields could configure.
    r"spec\.((templates\.\*|workflowSpec)\.)?executor(\..*)?": "the executor of Argo, which Perdure does not need",
    r".*\.(container|script|containerSet\.containers\.\*)\.name": "Argo calls the container `main`",
    r".*\.(container|script)\.mirrorVolumeMounts": "the main container has its own mounts",
    r".*\.sidecars\.\*\.restartPolicy": "sidecars always restart",
}
"""The fields that may be silent, and why. A path can end with the kind of its template."""


def unexplained(paths: Iterator[str], kind: str = "") -> list[str]:
    """Return the paths without a reason."""
    return [
        path
        for path in paths
        if not any(re.fullmatch(each, path) or re.fullmatch(each, f"{path}@{kind}") for each in NO_EFFECT)
    ]


PIPELINES: Final = frozenset({"pipelineRef", "pipelineSpec"})
"""Fields of a task that is a pipeline."""


@dataclass(frozen=True)
class Feed:
    """A part of a document whose fields are fed."""

    name: str
    system: str
    document: str
    starts: tuple[tuple[Path, frozenset[str]], ...]
    """The paths where it starts, with the fields directly below that are not fed."""
    kind: str = ""
    opaque: frozenset[str] = frozenset()
    """The fields whose own fields are not fed."""
    others: tuple[str, ...] = ()
    """The documents that are converted together."""
    by_schedule: bool = False
    """Whether `perdure schedule import` converts it."""

    def run(self) -> tuple[Feeder, list[str]]:
        """Feed the fields; return the figures, and the fields that are silent without a reason."""
        feeder = Feeder(self)
        paths = [path for start, skip in self.starts for path in feeder.silent(start, skip)]
        return feeder, unexplained(iter(paths), self.kind)


def _of_template(kind: str) -> Feed:
    opaque = {"container": frozenset[str](), "steps": PODS, "dag": PODS}.get(kind, PODS | {"artifacts"})
    start = ("spec", "templates", 0), WORK - {"container" if kind == "daemon" else kind}
    return Feed(f"Argo: template with {kind}", "argo", STEP % TEMPLATES[kind], (start,), kind, opaque)


def _definition(kind: str, run: str, field: str) -> str:
    """Return the Pipeline or the Task of a run."""
    spec = yaml.safe_load(run)["spec"][field]
    return yaml.safe_dump({"apiVersion": "tekton.dev/v1", "kind": kind, "metadata": {"name": "made"}, "spec": spec})


_WHOLE: Final = PODS | {"arguments", "templateDefaults", "templates", "artifacts"}
"""Fields of a workflow that are fed elsewhere in full."""
_NEW: Final = frozenset({"templates", "templateDefaults"})
_REFERRED: Final[tuple[Path, frozenset[str]]] = ("spec",), _NEW
_SCHEDULED: Final[tuple[Path, frozenset[str]]] = ("spec", "workflowSpec"), _NEW
_CHILD: Final[Path] = ("spec", "pipelineSpec", "tasks", 0, "pipelineSpec")
FEEDS: Final = (
    *map(_of_template, TEMPLATES),
    Feed(
        "Argo: Workflow",
        "argo",
        STEP % TEMPLATES["container"],
        ((("spec",), frozenset({"templates", "templateDefaults"})),),
    ),
    Feed(
        "Argo: CronWorkflow",
        "argo",
        CRON,
        ((("spec",), frozenset({"workflowSpec"})), _SCHEDULED),
        kind="one",
        opaque=_WHOLE,
    ),
    Feed("Argo: reference", "argo", REFERENCE, (_REFERRED,), kind="one", opaque=_WHOLE),
    Feed(
        "Argo: reference, and its template",
        "argo",
        REFERENCE,
        (_REFERRED,),
        kind="one",
        opaque=_WHOLE,
        others=(LIBRARY,),
    ),
    Feed("Argo: scheduled reference", "argo", CRON_REFERENCE, (_SCHEDULED,), kind="one", opaque=_WHOLE),
    Feed(
        "Argo: scheduled reference, and its template",
        "argo",
        CRON_REFERENCE,
        (_SCHEDULED,),
        kind="one",
        opaque=_WHOLE,
        others=(LIBRARY,),
    ),
    Feed("Argo: WorkflowTemplate", "argo", LIBRARY, (_REFERRED,), kind="one", opaque=_WHOLE),
    Feed(
        "Argo: ClusterWorkflowTemplate",
        "argo",
        TEMPLATE % ("ClusterWorkflowTemplate", "entrypoint: main"),
        (_REFERRED,),
        kind="one",
        opaque=_WHOLE,
    ),
    Feed(
        "Argo: templates without entrypoint",
        "argo",
        TEMPLATE % ("WorkflowTemplate", "arguments: {}"),
        (_REFERRED, (("spec", "templates", 0), WORK - {"container"})),
        "library",
        opaque=_WHOLE | {"artifacts"},
    ),
    Feed(
        "Argo: schedule import",
        "argo",
        CRON_REFERENCE,
        ((("spec",), frozenset({"workflowSpec"})), _SCHEDULED),
        opaque=_WHOLE - {"arguments"},
        by_schedule=True,
    ),
    Feed("CronJob: schedule import", "cronjob", CRON_JOB, (((), frozenset()),), by_schedule=True),
    Feed(
        "Tekton: PipelineRun",
        "tekton",
        RUN,
        ((("spec",), PIPELINES), (("spec", "pipelineSpec"), frozenset())),
        opaque=PIPELINES,
    ),
    Feed("Tekton: pipeline in a pipeline", "tekton", NESTED, ((_CHILD, frozenset()),), opaque=PIPELINES),
    Feed("Tekton: TaskRun", "tekton", TASK_RUN, (((), frozenset()),)),
    Feed(
        "Tekton: Pipeline",
        "tekton",
        _definition("Pipeline", RUN, "pipelineSpec"),
        ((("spec",), frozenset()),),
        "pipeline",
        PIPELINES,
    ),
    Feed("Tekton: Task", "tekton", _definition("Task", TASK_RUN, "taskSpec"), ((("spec",), frozenset()),), "task"),
)


def main() -> None:
    """Print the figures."""
    totals: dict[str, list[int]] = {}
    for feed in FEEDS:
        feeder, silent = feed.run()
        explained = feeder.fed - feeder.imported - feeder.reported - len(silent)
        figures = [feeder.fed, feeder.imported, feeder.reported, explained, len(silent)]
        _print(feed.name, figures)
        total = totals.setdefault(feed.system, [0] * len(figures))
        totals[feed.system] = [one + other for one, other in zip(total, figures, strict=True)]
    for system, figures in totals.items():
        _print(f"{system}, in total", figures)


def _print(name: str, figures: list[int]) -> None:
    words = ("fed", "imported", "reported", "silent for a reason", "silent")
    sys.stdout.write(
        f"{name:<46}" + ", ".join(f"{each} {word}" for each, word in zip(figures, words, strict=True)) + "\n"
    )


if __name__ == "__main__":
    main()
