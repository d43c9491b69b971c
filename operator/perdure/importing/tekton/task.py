"""Converts a task of Tekton to an activity: its steps become the containers of one pod, in order.

Its workspaces become volumes of the pod, or workspaces of Perdure.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from perdure.importing.programs import Output, Returns, not_expanded, option_of, quoted, returning
from perdure.importing.reader import Fields, Object, as_text
from perdure.importing.tekton.steps import evaluated_in_the_pod, result_path, with_spliced, without_marks
from perdure.importing.tekton.variables import VARIABLE, TaskScope, TaskValues, is_spread, substituted, with_paths
from perdure.importing.writer import valid_name


@dataclass(frozen=True, slots=True)
class WorkspaceBinding:
    """A workspace, mounted into the pods of a task."""

    source: Mapping[str, Any]
    """The volume, without its name; empty if the workspace is not bound."""
    sub_path: str = ""
    workspace: str = ""
    """The name of the workspace of Perdure; empty for a volume of the pods."""

    @property
    def is_bound(self) -> bool:
        """Whether there is a volume."""
        return bool(self.source or self.workspace)


@dataclass(frozen=True, slots=True)
class StepUses:
    """The workspaces that a step uses."""

    listed: Mapping[str, str]
    """Those that it lists, each with the path of its mount; empty for the path of the task."""
    isolated: frozenset[str]
    """Those that only the steps that list them use."""

    @classmethod
    def read(cls, step: Object, isolated: frozenset[str]) -> "StepUses":
        """Read the `workspaces` of a step, or of a sidecar."""
        return cls(dict(_listed_names(step)), isolated)

    def of(self, mounts: Mapping[str, Object]) -> list[Object]:
        """Select its mounts."""
        return [
            {**mount, "mountPath": self.listed.get(name) or mount["mountPath"]}
            for name, mount in mounts.items()
            if name in self.listed or name not in self.isolated
        ]


def isolated_workspaces(parts: Iterable[Object]) -> frozenset[str]:
    """Return the workspaces that steps or sidecars list: Tekton mounts them only there."""
    return frozenset(name for part in parts for name, _ in _listed_names(part))


def _listed_names(part: Object) -> Iterator[tuple[str, str]]:
    for each in part.get("workspaces") or []:
        fields = {key.lower(): value for key, value in each.items()}  # Tekton ignores the case of fields
        yield str(fields.get("name")), str(fields.get("mountpath") or "")


class TaskWorkspaces:
    """The converted workspaces that a task declares."""

    def __init__(
        self, declared: Sequence[Fields], bound: Mapping[str, WorkspaceBinding], *, several_steps: bool
    ) -> None:
        self._several_steps = several_steps
        self.paths: dict[str, str] = {}
        """The values of the variables of workspaces."""
        self.volumes: list[Object] = []
        self._mounts: dict[str, Object] = {}
        """The mounts of volumes, by the name of the workspace."""
        self._workspaces: dict[str, Object] = {}
        """The mounts of workspaces of Perdure, by the name of the workspace."""
        for each in declared:
            name = each.text("name") or ""
            self._add(each, name, bound.get(name))

    def _add(self, declared: Fields, name: str, binding: WorkspaceBinding | None) -> None:
        path = declared.text("mountPath") or f"/workspace/{name}"
        optional = declared.take("optional", False)
        read_only: Object = {"readOnly": True} if declared.take("readOnly", False) else {}
        declared.drop("description")
        declared.done({})
        bound = binding is not None and binding.is_bound
        self.paths[f"workspaces.{name}.path"] = path if bound else ""
        self.paths[f"workspaces.{name}.bound"] = "true" if bound else "false"
        self.paths[f"workspaces.{name}.volume"] = f"ws-{name}" if bound else ""
        if binding is None:
            if not optional:
                declared.gap("", "is not bound; import it together with the run that binds it")
            return
        sub_path: Object = {"subPath": binding.sub_path} if binding.sub_path else {}
        if binding.workspace:
            if sub_path and self._several_steps and VARIABLE.search(binding.sub_path):
                declared.gap("subPath", "must be known before the run if the task has several steps; write it here")
            self._workspaces[name] = {"name": binding.workspace, "mountPath": path, **read_only, **sub_path}
        elif binding.source:
            self.volumes.append({"name": f"ws-{name}", **binding.source})
            self._mounts[name] = {"name": f"ws-{name}", "mountPath": path, **sub_path, **read_only}

    def of_activity(self, uses: StepUses) -> list[Object]:
        """Return the workspaces of Perdure for the last step, which is the container of the activity.

        Args:
            uses: The workspaces of that step.
        """
        return uses.of(self._workspaces)

    def mounts(self, uses: StepUses, *, is_last: bool) -> list[Object]:
        """Return the mounts of a step, or of a sidecar.

        Args:
            uses: Its workspaces.
            is_last: Whether it is the last step.
        """
        workspaces = [] if is_last else uses.of(self._workspaces)
        return [*uses.of(self._mounts), *({**each, "name": f"workspace-{each['name']}"} for each in workspaces)]


@dataclass(slots=True)
class TaskContext:
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
class ConvertedTask:
    """An activity, with the data for calling it from steps."""

    definition: Object
    results: tuple[str, ...]
    defaults: Mapping[str, Any]
    captured: Mapping[str, tuple[str, ...]]


_TOOLS: Final = "tekton"
_MOUNTED: Final = {
    "/tekton/results": "results",
    "/tekton/steps": "steps",
    "/tekton/home": "home",
    "/workspace": "workspace",
}
"""Folders that the steps of a task share, by the name of their sub-path."""


class TaskBuilder:
    """Makes the activity of one use of a task."""

    def __init__(self, spec: Fields, context: TaskContext) -> None:
        self._spec = spec
        self._context = context
        self.params = {str(each.data.get("name")): each for each in spec.parts("params")}
        """The parameters of the task."""
        self._results = spec.parts("results")
        self._workspaces = TaskWorkspaces(
            spec.parts("workspaces"), context.workspaces, several_steps=len(spec.data.get("steps") or []) > 1
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
        self._text = str(spec.data) + str([each.data for _, each in self._steps]) + str(context.actions)
        self._scope = TaskScope(context.task, context.step, self.params, paths)
        self._values = TaskValues(
            self._scope,
            self.params,
            known=context.values,
            lengths=context.lengths,
            paths=paths,
            report=spec.report,
        )

    def build(self) -> ConvertedTask:
        """Make the activity."""
        spec, values = self._spec, self._values
        defaults = {name: each.data["default"] for name, each in self.params.items() if "default" in each.data}
        made_by = TaskContainers(values, spec.part("stepTemplate").data, self._context.actions)
        others = spec.parts("sidecars")
        parts = [*(each.data for _, each in self._steps), *(each.data for each in others)]
        isolated = isolated_workspaces(parts)
        uses = [StepUses.read(each, isolated) for each in parts]
        sidecars = [made_by.sidecar(each) for each in others]
        outputs = [_output(each, {name for name, _ in self._steps}) for each in self._results]
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
        pod: Object = {"securityContext": {"runAsNonRoot": False, **(self._context.pod.get("securityContext") or {})}}
        pod |= {key: value for key, value in self._context.pod.items() if key != "securityContext"}
        pod["volumes"] = [*volumes, *pod.pop("volumes", [])]
        pod["initContainers"] = [*sidecars, *containers[:-1]]
        made = {key: value for key, value in pod.items() if value not in ([], {})}
        spec.drop("description", "displayName")
        metadata = spec.part("metadata")
        labels = {
            key: {name: as_text(value) for name, value in found.items()}
            for key in ("labels", "annotations")
            if (found := metadata.take(key))
        }
        metadata.done({})
        spec.done(ADVICE)
        spliced = {
            "containers": [each for one in containers[-1:] if (each := with_spliced(one))],
            "initContainers": [each for one in containers[:-1] if (each := with_spliced(one))],
        }
        for each in (*containers, *sidecars):
            without_marks(each, spec)
        patch = {key: each for key, each in spliced.items() if each}
        workspaces = [self._with_path(each) for each in self._workspaces.of_activity(uses[len(containers) - 1])]
        definition: Object = {
            "name": valid_name(self._context.step),
            "startToCloseTimeout": self._context.timeout or "1h",
            "retryPolicy": {"exponential": {"initialInterval": "1s", "maximumAttempts": self._context.retries + 1}},
            **({"workspaces": workspaces} if workspaces else {}),
            "podTemplate": {
                **({"metadata": values.plain(labels, metadata.path)} if labels else {}),
                "spec": {**made, "containers": containers[-1:]},
            },
            **({"podSpecPatch": patch} if patch else {}),
        }
        return ConvertedTask(definition, tuple(each.name for each in outputs), defaults, self._scope.captured)

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
            declared = each.get("volumeMounts", [])
            taken = {mount.get("mountPath") for mount in declared}
            added = [*(tools if i <= len(steps) else ()), *mounts]
            all_mounts = [*(mount for mount in added if mount["mountPath"] not in taken), *declared]
            if all_mounts:
                each["volumeMounts"] = all_mounts

    def _with_path(self, mount: Object) -> Object:
        if "subPath" not in mount:
            return mount
        return {**mount, "subPath": self._values.evaluated(mount["subPath"], "workspaces")}


def _output(result: Fields, steps: Collection[str]) -> Output:
    name, kind = result.text("name") or "", result.text("type") or "string"
    path, value = f"/tekton/results/{name}", result.text("value")
    if value is not None:
        found = _STEP_RESULT.fullmatch(value)
        if found is None or found[1] not in steps:
            result.gap("value", "must be one result of a step, `$(steps.STEP.results.RESULT)`")
        else:
            path = result_path(found[1], found[2])
    result.drop("description", "properties")
    result.done({})
    return Output(name, path, "null" if kind != "string" else "", is_json=kind != "string")


_STEP_RESULT: Final = re.compile(r"\$\(steps\.([-\w]+)\.results\.([-\w]+)(?:\[\*\])?\)")


_SHEBANG: Final = re.compile(r"#!\s*(\S+)[ \t]*(.*)\n?")
ADVICE: Final = {
    "timeout": "limit the whole task with its timeout",
    "ref": "use a StepAction that is in the files",
    "artifacts": "artifacts are not imported; pass files in a workspace",
}
"""The alternative, by field name."""


class TaskContainers:
    """Converts the steps and the sidecars of a task."""

    def __init__(self, values: TaskValues, template: Object, actions: Mapping[str, Object]) -> None:
        """Create a converter.

        Args:
            values: Converts values.
            template: The common fields of all steps.
            actions: The specs of StepActions, by name.
        """
        self._values = values
        self._template = template
        self._actions = actions

    def step(self, source: Fields, name: str, outputs: list[Output]) -> Object:
        """Return the container of a step.

        Args:
            source: The step.
            name: Its name.
            outputs: The values to return; only the last step returns values.
        """
        step = self._action(source)
        step.drop("name")
        continues = self._values.plain(step.take("onError", "stopAndFail"), step.at("onError")) == "continue"
        step.drop("workspaces")
        results = [each.text("name") or "" for each in step.parts("results")]
        step.data = with_paths(step.data, {f"step.results.{each}.path": result_path(name, each) for each in results})
        whens = step.parts("when")
        container = {"name": f"step-{name}", **self._container(step, self._template)}
        if container.get("args") and not container.get("command"):
            step.note("args", "are passed to the entrypoint of the image; if it has none, set `command`")
        container |= evaluated_in_the_pod(container, whens, step, self._values)
        line = [*container.get("command", []), *container.get("args", [])]
        streams = {key: container.pop(key, None) for key in ("stdoutConfig", "stderrConfig")}
        if any(streams.values()):
            line = self._redirected(line, streams, step)
            container |= {"command": line[:2], "args": line[2:]}
        if continues:
            if not line:
                step.gap("onError", "needs a command or a script: a shell starts it, and keeps its exit code")
            folder = quoted(f"/tekton/steps/step-{name}")
            program = f'"$@"; code=$?; mkdir -p {folder}; printf %s "$code" > {folder}/exitCode'
            line = ["sh", "-c", not_expanded(program), "perdure", *line]
            container |= {"command": line[:2], "args": line[2:]}
        if outputs:
            if not line:
                step.gap("command", "must be set: to return results, a shell starts the command")
                return container
            container |= returning(line, Returns(tuple(outputs)))
        return container

    def sidecar(self, sidecar: Fields) -> Object:
        """Return the container of a sidecar."""
        sidecar.drop("workspaces")
        container = self._container(sidecar, {})
        if "readinessProbe" in container:
            container.setdefault("startupProbe", container.pop("readinessProbe"))
        return {"name": str(container.pop("name", "sidecar")), **container, "restartPolicy": "Always"}

    @staticmethod
    def _redirected(line: list[str], streams: Object, step: Fields) -> list[str]:
        """Return a command line whose output is also written to files."""
        if not line:
            step.gap("stdoutConfig", "needs a command or a script: a shell starts it, and redirects its output")
            return line
        signs = {"stdoutConfig": ">", "stderrConfig": "2>"}
        paths = {signs[name]: str(stream.get("path")) for name, stream in streams.items() if isinstance(stream, dict)}
        redirections = " ".join(f"{sign} {quoted(path)}" for sign, path in paths.items())
        return ["sh", "-c", f'"$@" {redirections}', "perdure", *line]

    def _action(self, step: Fields) -> Fields:
        """Return a step merged with its StepAction."""
        reference = step.data.get("ref")
        found = self._actions.get(str(reference.get("name"))) if isinstance(reference, dict) else None
        if found is None:
            if step.take("params"):
                step.gap("params", "only a step with a `ref` has parameters; remove them")
            return step
        passed = {str(each.get("name")): each.get("value") for each in step.data.get("params") or []}
        passed = {name: self._values.known(each) for name, each in passed.items()}
        values = {
            str(each.get("name")): _parameter(passed.get(str(each.get("name"))), each.get("default"))
            for each in found.get("params") or []
        }
        for name, value in values.items():
            if value is None:
                step.gap("params", f"the parameter `{name}` of the StepAction has no value; pass one")
        for name in passed.keys() - values.keys():
            step.gap("params", f"the StepAction has no parameter `{name}`; remove it")
        merged = {key: value for key, value in found.items() if key not in {"params", "description"}}
        rest = {key: value for key, value in step.data.items() if key not in {"ref", "params"}}
        return Fields({**substituted(merged, values), **rest}, step.path, step.report)

    def _container(self, container: Fields, template: Object) -> Object:
        base = Fields({**template, **container.data}, container.path, container.report)
        if template.get("env") and container.data.get("env"):
            by_name = {each.get("name"): each for each in [*template["env"], *container.data["env"]]}
            base.data["env"] = list(by_name.values())
        script = base.text("script")
        fields: Object = {}
        for key in list(base.data):
            value = base.take(key)
            if value in (None, {}, []) or key == "displayName":
                continue
            path = base.at(key)
            if key in {"ref", "timeout"}:
                base.gap(key, f"has no counterpart; {ADVICE[key]}")
            elif key in {"command", "args"}:
                fields[key] = [
                    text for i, each in enumerate(value) for text in self._values.words(as_text(each), f"{path}[{i}]")
                ]
            elif key == "env":
                fields[key] = [self._values.variable(each, f"{path}[{i}]") for i, each in enumerate(value)]
            elif key == "image":
                fields[key] = self._values.evaluated(as_text(value), path)
            else:
                fields["resources" if key == "computeResources" else key] = self._values.plain(value, path)
        if script is not None:
            fields |= self._script(script, fields.get("args", []), base)
        return self._fixed(fields, base)

    def _script(self, script: str, args: list[str], source: Fields) -> Object:
        found = _SHEBANG.match(script)
        words = [found[1], *found[2].split()] if found else ["sh", "-e"]
        if found and words[0].endswith("/env"):
            words = [word for word in words[1:] if word != "-S"]
        option = option_of(words[0])
        if option is None:
            source.gap("script", f"`{words[0]}` has no known option for a program; put the script into the image")
            return {"command": words}
        body = script[found.end() :] if found else script
        program = self._values.evaluated(_not_expanded_but_variables(body), source.at("script"))
        name = ["script"] if option == "-c" and args and not words[0].rstrip("0123456789.").endswith("python") else []
        return {"command": words, "args": [option, program, *name, *args]}

    @staticmethod
    def _fixed(container: Object, source: Fields) -> Object:
        """Return a container without expressions in `command`: words from the first expression on become arguments."""
        command = container.get("command", [])
        first = next((i for i, word in enumerate(command) if "${" in word.replace("$${", "")), len(command))
        if command and first == 0:
            source.gap(
                "command", "the program must not be computed; start it with a shell, with the variable as an argument"
            )
            return {**container, "command": [str(word) for word in command]}
        kept = [word.replace("$${", "${") for word in command[:first]]
        rest = [*command[first:], *container.get("args", [])]
        return {**container, **({"command": kept} if kept else {}), **({"args": rest} if rest else {})}


def _parameter(value: Any, default: Any) -> Any:
    """Return the value of a parameter of a StepAction. An object has the fields of its default, too."""
    if value is None or (isinstance(default, list | dict) and isinstance(value, str) and not is_spread(value)):
        return default
    return {**default, **value} if isinstance(default, dict) and isinstance(value, dict) else value


def _not_expanded_but_variables(text: str) -> str:
    """Escape a script for `args` so that Kubernetes expands nothing, and keep the variables of Tekton."""
    made, end = "", 0
    for found in VARIABLE.finditer(text):
        made += not_expanded(text[end : found.start()]) + found[0]
        end = found.end()
    return made + not_expanded(text[end:])
