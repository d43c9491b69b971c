"""Foreign manifests, converted, checked, and simulated."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from perdure.api.yaml_text import dump_blocks
from perdure.cli.files.conversion import Convert, convert_files
from perdure.cli.files.scenarios import simulate_scenario
from perdure.importing.argo import manifests as argo_
from perdure.importing.tekton import manifests as tekton_

Json = dict[str, Any]


@dataclass(frozen=True)
class Result:
    file: Path
    manifests: list[Json]
    sentences: tuple[str, ...]
    complete: bool

    @property
    def spec(self) -> Json:
        """The definition of the only run or Workflow."""
        (found,) = [each for each in self.manifests if each["kind"] in {"WorkflowRun", "Workflow"}]
        spec: Json = found["spec"]
        inline: Json = spec.get("inline", spec)
        return inline

    def activity(self, name: str) -> Json:
        return next(each for each in self.spec["activities"] if each["name"] == name)

    def step(self, name: str) -> Json:
        lists = [self.spec["steps"], *(block["steps"] for block in self.spec.get("blocks", []))]
        return next(step for steps in lists for step in steps if step["name"] == name)

    def simulate(self, activities: Json | None = None, **scenario: Any) -> Json:
        """The outcome; each attempt ends as `activities` says."""
        file = self.file.with_suffix(".scenario.yaml")
        file.write_text(dump_blocks({"activities": activities or {}, **scenario}))
        report: Json = simulate_scenario([str(self.file)], str(file))[1].as_json()
        return report


def argo(folder: Path, *texts: str) -> Result:
    """Import manifests of Argo; each text is a file."""
    return _imported(folder, texts, argo_.KINDS, argo_.convert)


def tekton(folder: Path, *texts: str) -> Result:
    """Import manifests of Tekton; each text is a file."""
    return _imported(folder, texts, tekton_.KINDS, tekton_.convert)


def _imported(folder: Path, texts: tuple[str, ...], kinds: tuple[str, ...], convert: Convert) -> Result:
    files = []
    for i, text in enumerate(texts):
        file = folder / f"foreign-{i}.yaml"
        file.write_text(text)
        files.append(str(file))
    made = convert_files(files, kinds, convert)
    file = folder / "imported.yaml"
    file.write_text(made.text)
    return Result(file, list(yaml.safe_load_all(made.text)), made.sentences, made.complete)


def workflow(templates: str, spec: str = "entrypoint: main") -> str:
    """A Workflow of Argo.

    Args:
        templates: Its templates, as a list in YAML.
        spec: The other fields of its spec, in YAML.
    """
    indented = "\n".join(f"  {line}" for line in [*spec.splitlines(), "templates:", *templates.splitlines()])
    return f"apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {{name: made}}\nspec:\n{indented}\n"


def ran(report: Json, activity: str) -> list[Any]:
    """The outcomes of the attempts of an activity."""
    return [each["outcome"] for each in report["attempts"].get(activity, [])]


def inputs(report: Json) -> list[Any]:
    """The inputs of the activities, in the order in which they were scheduled."""
    return [event.get("input") for event in report["events"] if event["eventType"] == "ActivityTaskScheduled"]


def pipeline_run(spec: str) -> str:
    indented = "\n".join(f"    {line}" for line in spec.splitlines())
    return f"kind: PipelineRun\nmetadata: {{name: made}}\nspec:\n  pipelineSpec:\n{indented}\n"
