"""Converts a task of Tekton to an activity: its steps become the containers of one pod, in order."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from perdure.importing.field_reader import Fields, Object, valid_name
from perdure.importing.programs import Output
from perdure.importing.tekton_containers import ADVICE, TaskContainers
from perdure.importing.tekton_scope import TaskScope
from perdure.importing.tekton_values import TaskValues
from perdure.importing.tekton_workspaces import StepUses, TaskWorkspaces, WorkspaceBinding, isolated_workspaces

_TOOLS: Final = "tekton"
_MOUNTED: Final = {
    "/tekton/results": "results",
    "/tekton/steps": "steps",
    "/tekton/home": "home",
    "/workspace": "workspace",
}
"""Folders that the steps of a task share, by the name of their sub-path."""


@dataclass(slots=True)
class Setting:
    """The environment of a task."""

    task: str
    """The name of the task."""
    step: str
    """The name of the task in the pipeline."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The parameters whose values are known; expressions are not."""
    lengths: Mapping[str, int] = field(default_factory=dict)
    """The lengths of arrays whose values are computed."""
    workspaces: Mapping[str, WorkspaceBinding] = field(default_factory=dict)
    pod: Object = field(default_factory=dict)
    """Fields of the pod spec."""
    actions: Mapping[str, Object] = field(default_factory=dict)
    """The specs of StepActions."""
    retries: int = 0
    timeout: str | None = None


@dataclass(frozen=True, slots=True)
class MadeTask:
    """An activity, with the data for calling it from steps."""

    definition: Object
    results: tuple[str, ...]
    defaults: Mapping[str, Any]
    captured: Mapping[str, tuple[str, ...]]


class TaskBuilder:
    """Makes the activity of one use of a task."""

    def __init__(self, spec: Fields, setting: Setting) -> None:
        self._spec = spec
        self._setting = setting
        self._params = {str(each.data.get("name")): each for each in spec.parts("params")}
        self._results = spec.parts("results")
        self._workspaces = TaskWorkspaces(
            spec.parts("workspaces"), setting.workspaces, several_steps=len(spec.data.get("steps") or []) > 1
        )
        self._steps = [
            (str(each.data.get("name") or f"unnamed-{i}"), each) for i, each in enumerate(spec.parts("steps"))
        ]
        paths = {
            f"results.{each.data.get('name')}.path": f"/tekton/results/{each.data.get('name')}"
            for each in self._results
        }
        paths |= self._workspaces.paths
        paths |= {f"steps.step-{name}.exitCode.path": f"/tekton/steps/step-{name}/exitCode" for name, _ in self._steps}
        self._text = str(spec.data) + str([each.data for _, each in self._steps]) + str(setting.actions)
        self._scope = TaskScope(setting.task, setting.step, self._params, paths)
        self._values = TaskValues(
            self._scope,
            self._params,
            known=setting.values,
            lengths=setting.lengths,
            paths=paths,
            report=spec.report,
        )

    def build(self) -> MadeTask:
        """Make the activity."""
        spec, values = self._spec, self._values
        defaults = {name: each.data["default"] for name, each in self._params.items() if "default" in each.data}
        made_by = TaskContainers(values, spec.part("stepTemplate").data, self._setting.actions)
        others = spec.parts("sidecars")
        parts = [*(each.data for _, each in self._steps), *(each.data for each in others)]
        isolated = isolated_workspaces(parts)
        uses = [StepUses.read(each, isolated) for each in parts]
        sidecars = [made_by.sidecar(each) for each in others]
        outputs = [_output(each) for each in self._results]
        containers = [
            made_by.step(each, name, outputs if i == len(self._steps) else [])
            for i, (name, each) in enumerate(self._steps, 1)
        ]
        volumes = [
            *self._workspaces.volumes,
            *(values.plain(each, spec.at("volumes")) for each in spec.take("volumes", [])),
        ]
        shared = {path: name for path, name in _MOUNTED.items() if self._shares(path, containers)}
        if shared:
            volumes.append({"name": _TOOLS, "emptyDir": {}})
        self._mount(containers, sidecars, uses, shared)
        pod: Object = {"securityContext": {"runAsNonRoot": False, **(self._setting.pod.get("securityContext") or {})}}
        pod |= {key: value for key, value in self._setting.pod.items() if key != "securityContext"}
        pod["volumes"] = [*volumes, *pod.pop("volumes", [])]
        pod["initContainers"] = [*sidecars, *containers[:-1]]
        made = {key: value for key, value in pod.items() if value not in ([], {})}
        spec.drop("description", "displayName")
        spec.done(ADVICE)
        own = [self._with_path(each) for each in self._workspaces.of_activity(uses[len(containers) - 1])]
        definition: Object = {
            "name": valid_name(self._setting.step),
            "startToCloseTimeout": self._setting.timeout or "1h",
            "retryPolicy": {"exponential": {"initialInterval": "1s", "maximumAttempts": self._setting.retries + 1}},
            **({"workspaces": own} if own else {}),
            "podTemplate": {"spec": {**made, "containers": containers[-1:]}},
        }
        return MadeTask(definition, tuple(each.name for each in outputs), defaults, self._scope.captured)

    def _shares(self, path: str, containers: list[Object]) -> bool:
        """Whether the steps use a shared folder."""
        if path == "/tekton/results":
            return bool(self._results)
        return path in self._text or path in str(containers)

    def _mount(
        self, steps: list[Object], sidecars: list[Object], uses: list[StepUses], shared: Mapping[str, str]
    ) -> None:
        """Mount shared folders and workspaces. A mount that a container declares itself wins, as in Tekton."""
        tools = [{"name": _TOOLS, "mountPath": path, "subPath": name} for path, name in shared.items()]
        for i, (each, used) in enumerate(zip([*steps, *sidecars], uses, strict=True), 1):
            mounts = self._workspaces.mounts(used, is_last=i == len(steps))
            own = each.get("volumeMounts", [])
            taken = {mount["mountPath"] for mount in own}
            added = [*(tools if i <= len(steps) else ()), *mounts]
            all_mounts = [*(mount for mount in added if mount["mountPath"] not in taken), *own]
            if all_mounts:
                each["volumeMounts"] = all_mounts

    def _with_path(self, mount: Object) -> Object:
        if "subPath" not in mount:
            return mount
        return {**mount, "subPath": self._values.evaluated(mount["subPath"], "workspaces")}


def _output(result: Fields) -> Output:
    name, kind = result.text("name") or "", result.text("type") or "string"
    if "value" in result:
        result.gap("value", "results of steps have no counterpart; write the result of the task in the step")
    result.drop("description", "properties", "value")
    result.done({})
    return Output(name, f"/tekton/results/{name}", "null" if kind != "string" else "", is_json=kind != "string")
