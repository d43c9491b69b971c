"""A task of Tekton as an activity: its steps are the containers of one pod, in order."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from perdure.importing.expressions import UntranslatableError
from perdure.importing.fields import Fields, Object, Report, as_text, member, valid_name
from perdure.importing.programs import Output, not_expanded, option_of, quoted, returning
from perdure.importing.tekton_scope import VARIABLE, TaskScope, translated

_SHEBANG: Final = re.compile(r"#!\s*(\S+)[ \t]*(.*)\n?")
_ARRAY: Final = re.compile(r"\$\(params(?:\.([-\w]+)|\[['\"]([^'\"]+)['\"]\])\[\*\]\)")
_TOOLS: Final = "tekton"
_MOUNTED: Final = {
    "/tekton/results": "results",
    "/tekton/steps": "steps",
    "/tekton/home": "home",
    "/workspace": "workspace",
}
"""Folders that the steps of a task share, by the name of their sub-path."""
_ADVICE: Final = {
    "timeout": "limit the whole task with its timeout",
    "when": "put the condition into the script",
    "ref": "use a StepAction that is in the files",
    "artifacts": "artifacts are not imported; pass files in a workspace",
}


@dataclass(frozen=True, slots=True)
class Volume:
    """A workspace, mounted into the pods of a task."""

    source: Mapping[str, Any]
    """The volume, without its name; empty if the workspace is not bound."""
    sub_path: str = ""
    workspace: str = ""
    """The workspace of Perdure that it is; empty for a volume of the pods."""

    @property
    def is_bound(self) -> bool:
        """Whether there is a volume."""
        return bool(self.source or self.workspace)


@dataclass(slots=True)
class Setting:
    """Where a task runs."""

    task: str
    """The name of the task."""
    step: str
    """The name of the task in the pipeline."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The parameters whose values are known; expressions are not."""
    lengths: Mapping[str, int] = field(default_factory=dict)
    """The lengths of arrays whose values are computed."""
    workspaces: Mapping[str, Volume] = field(default_factory=dict)
    pod: Object = field(default_factory=dict)
    """Fields of the pod spec."""
    actions: Mapping[str, Object] = field(default_factory=dict)
    """The specs of StepActions."""
    retries: int = 0
    timeout: str | None = None


@dataclass(frozen=True, slots=True)
class MadeTask:
    """An activity, and how steps call it."""

    definition: Object
    results: tuple[str, ...]
    defaults: Mapping[str, Any]
    captured: Mapping[str, tuple[str, ...]]


class TaskBuilder:
    """Makes the activity of one use of a task."""

    def __init__(self, spec: Fields, setting: Setting) -> None:
        self._spec = spec
        self._report: Report = spec.report
        self._setting = setting
        self._params = {str(each.data.get("name")): each for each in spec.parts("params")}
        self._results = spec.parts("results")
        self._volumes: list[Object] = []
        self._mounts: list[Object] = []
        self._own: list[Object] = []
        """The workspaces that the last step mounts."""
        self._others: list[Object] = []
        """The same, in the other steps."""
        paths = {
            f"results.{each.data.get('name')}.path": f"/tekton/results/{each.data.get('name')}"
            for each in self._results
        }
        paths |= self._workspaces(spec.parts("workspaces"))
        self._steps = spec.parts("steps")
        self._names = [str(each.data.get("name") or f"unnamed-{i}") for i, each in enumerate(self._steps)]
        for name in self._names:
            paths[f"steps.step-{name}.exitCode.path"] = f"/tekton/steps/step-{name}/exitCode"
        self._text = str(spec.data) + str([each.data for each in self._steps]) + str(setting.actions)
        self._scope = TaskScope(setting.task, setting.step, self._params, paths)
        self._paths = paths

    def build(self) -> MadeTask:
        """Make the activity."""
        spec = self._spec
        defaults = {name: each.data["default"] for name, each in self._params.items() if "default" in each.data}
        template = spec.part("stepTemplate").data
        sidecars = [self._sidecar(each) for each in spec.parts("sidecars")]
        outputs = [self._output(each) for each in self._results]
        containers = [self._step(i, template, outputs) for i in range(len(self._steps))]
        self._volumes += [self._plain(each, spec.at("volumes")) for each in spec.take("volumes", [])]
        shared = {path: name for path, name in _MOUNTED.items() if self._shares(path, containers, outputs)}
        if shared:
            self._volumes.append({"name": _TOOLS, "emptyDir": {}})
        mounts = [{"name": _TOOLS, "mountPath": path, "subPath": name} for path, name in shared.items()] + self._mounts
        for each in containers:
            all_mounts = [*mounts, *(self._others if each is not containers[-1] else []), *each.get("volumeMounts", [])]
            if all_mounts:
                each["volumeMounts"] = all_mounts
        pod: Object = {"securityContext": {"runAsNonRoot": False, **(self._setting.pod.get("securityContext") or {})}}
        pod |= {key: value for key, value in self._setting.pod.items() if key != "securityContext"}
        pod["volumes"] = [*self._volumes, *pod.pop("volumes", [])]
        pod["initContainers"] = [*sidecars, *containers[:-1]]
        made = {key: value for key, value in pod.items() if value not in ([], {})}
        spec.drop("description", "displayName")
        spec.done(_ADVICE)
        definition: Object = {
            "name": valid_name(self._setting.step),
            "startToCloseTimeout": self._setting.timeout or "1h",
            "retryPolicy": {"exponential": {"initialInterval": "1s", "maximumAttempts": self._setting.retries + 1}},
            **({"workspaces": [self._with_path(each) for each in self._own]} if self._own else {}),
            "podTemplate": {"spec": {**made, "containers": containers[-1:]}},
        }
        return MadeTask(definition, tuple(each.name for each in outputs), defaults, self._scope.captured)

    def _with_path(self, mount: Object) -> Object:
        return {**mount, **({"subPath": self._evaluated(mount["subPath"], "workspaces")} if "subPath" in mount else {})}

    def _shares(self, path: str, containers: list[Object], outputs: list[Output]) -> bool:
        if path == "/tekton/results":
            return bool(outputs) and (len(containers) > 1 or bool(outputs))
        return path in self._text or path in str(containers)

    def _workspaces(self, declared: list[Fields]) -> Object:
        paths: Object = {}
        for each in declared:
            name = each.text("name") or ""
            volume = self._setting.workspaces.get(name)
            path = each.text("mountPath") or f"/workspace/{name}"
            optional = each.take("optional", False)
            read_only = each.take("readOnly", False)
            each.drop("description")
            each.done({})
            bound = volume is not None and volume.is_bound
            paths[f"workspaces.{name}.path"] = path if bound else ""
            paths[f"workspaces.{name}.bound"] = "true" if bound else "false"
            paths[f"workspaces.{name}.volume"] = f"ws-{name}" if bound else ""
            if volume is None and not optional:
                each.gap("", "is not bound; import the run that binds it together with this")
            if volume is not None and volume.workspace:
                self._mount(each, volume, path, read_only=bool(read_only))
            elif volume is not None and volume.source:
                self._volumes.append({"name": f"ws-{name}", **volume.source})
                mount: Object = {"name": f"ws-{name}", "mountPath": path}
                self._mounts.append(
                    {
                        **mount,
                        **({"subPath": volume.sub_path} if volume.sub_path else {}),
                        **({"readOnly": True} if read_only else {}),
                    }
                )
        return paths

    def _mount(self, declared: Fields, volume: Volume, path: str, *, read_only: bool) -> None:
        """Mount a workspace of Perdure: into the last step by the activity, into the others as a volume."""
        mount: Object = {"name": volume.workspace, "mountPath": path, **({"readOnly": True} if read_only else {})}
        if not volume.sub_path:
            self._own.append(mount)
            self._others.append({**mount, "name": f"workspace-{volume.workspace}"})
            return
        several = len(self._spec.data.get("steps") or []) > 1
        if several and VARIABLE.search(volume.sub_path):
            declared.gap("subPath", "must be known before the run if the task has several steps; write it here")
        self._own.append({**mount, "subPath": volume.sub_path})
        self._others.append({**mount, "name": f"workspace-{volume.workspace}", "subPath": volume.sub_path})

    def _output(self, result: Fields) -> Output:
        name, kind = result.text("name") or "", result.text("type") or "string"
        if "value" in result:
            result.gap("value", "results of steps have no counterpart; write the result of the task in the step")
        result.drop("description", "properties", "value")
        result.done({})
        return Output(name, f"/tekton/results/{name}", "null" if kind != "string" else "", is_json=kind != "string")

    def _sidecar(self, sidecar: Fields) -> Object:
        sidecar.drop("workspaces")
        made = self._container(sidecar, {})
        if "readinessProbe" in made:
            made.setdefault("startupProbe", made.pop("readinessProbe"))
        made.pop("lifecycle", None)
        return {"name": str(made.pop("name", "sidecar")), **made, "restartPolicy": "Always"}

    def _step(self, number: int, template: Object, outputs: list[Output]) -> Object:
        step = self._action(self._steps[number])
        step.drop("name")
        goes_on = step.take("onError", "stopAndFail") == "continue"
        step.drop("workspaces")
        self._bare(step)
        made = {"name": f"step-{self._names[number]}", **self._container(step, template)}
        if made.get("args") and not made.get("command"):
            step.note("args", "are passed to the entrypoint of the image; if it has none, set `command`")
        line = [*made.get("command", []), *made.get("args", [])]
        last = number == len(self._steps) - 1
        streams = {name: made.pop(name, None) for name in ("stdoutConfig", "stderrConfig")}
        if any(streams.values()):
            line = self._redirected(line, streams, step)
            made |= {"command": line[:2], "args": line[2:]}
        if goes_on:
            if not line:
                step.gap("onError", "needs a command or a script: a shell starts it, and keeps its exit code")
            folder = quoted(f"/tekton/steps/step-{self._names[number]}")
            program = f'"$@"; code=$?; mkdir -p {folder}; printf %s "$code" > {folder}/exitCode'
            line = ["sh", "-c", not_expanded(program), "perdure", *line]
            made |= {"command": line[:2], "args": line[2:]}
        if last and outputs:
            if not line:
                step.gap("command", "must be set: to return results, a shell starts the command")
                return made
            made |= returning(line, outputs, prints=False)
        return made

    @staticmethod
    def _redirected(line: list[str], streams: Object, step: Fields) -> list[str]:
        """A command line whose output also goes to files."""
        if not line:
            step.gap("stdoutConfig", "needs a command or a script: a shell starts it, and redirects its output")
            return line
        signs = {"stdoutConfig": ">", "stderrConfig": "2>"}
        paths = {signs[name]: str(stream.get("path")) for name, stream in streams.items() if isinstance(stream, dict)}
        redirections = " ".join(f"{sign} {quoted(path)}" for sign, path in paths.items())
        return ["sh", "-c", f'"$@" {redirections}', "perdure", *line]

    def _bare(self, step: Fields) -> None:
        for name in ("results", "params"):
            if name in step:
                step.gap(name, "results and parameters of steps have no counterpart; write them into the task")
                step.drop(name)

    def _action(self, step: Fields) -> Fields:
        """A step with the StepAction that it names."""
        reference = step.data.get("ref")
        found = self._setting.actions.get(str((reference or {}).get("name"))) if isinstance(reference, dict) else None
        if found is None:
            return step
        given = {str(each.get("name")): each.get("value") for each in step.data.get("params") or []}
        declared = found.get("params") or []
        values = {str(each.get("name")): given.get(str(each.get("name")), each.get("default")) for each in declared}
        merged = {key: value for key, value in found.items() if key not in {"params", "description"}}
        rest = {key: value for key, value in step.data.items() if key not in {"ref", "params"}}
        return Fields({**substituted(merged, values), **rest}, step.path, step.report)

    def _container(self, container: Fields, template: Object) -> Object:
        base = Fields({**template, **container.data}, container.path, container.report)
        if template.get("env") and container.data.get("env"):
            by_name = {each.get("name"): each for each in [*template["env"], *container.data["env"]]}
            base.data["env"] = list(by_name.values())
        script = base.text("script")
        made: Object = {}
        for key in list(base.data):
            value = base.take(key)
            if value in (None, {}, []) or key == "displayName":
                continue
            path = base.at(key)
            if key in {"ref", "timeout", "when"}:
                base.gap(key, f"has no counterpart; {_ADVICE[key]}")
            elif key in {"command", "args"}:
                made[key] = [
                    text for i, each in enumerate(value) for text in self._words(as_text(each), f"{path}[{i}]")
                ]
            elif key == "env":
                made[key] = [self._variable(each, f"{path}[{i}]") for i, each in enumerate(value)]
            elif key == "image":
                made[key] = self._evaluated(as_text(value), path)
            else:
                made["resources" if key == "computeResources" else key] = self._plain(value, path)
        if script is not None:
            made |= self._script(script, made.get("args", []), base)
        return self._fixed(made, base)

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
        program = self._evaluated(not_expanded_but_variables(body), source.at("script"))
        name = ["script"] if option == "-c" and args and not words[0].rstrip("0123456789.").endswith("python") else []
        return {"command": words, "args": [option, program, *name, *args]}

    def _words(self, text: str, path: str) -> list[str]:
        """The words that an argument stands for: an array has several."""
        found = _ARRAY.fullmatch(text)
        if found is None:
            return [self._evaluated(text, path)]
        name = found[1] or found[2]
        default = self._params[name].data.get("default") if name in self._params else None
        values = self._setting.values.get(name, default)
        if name in self._setting.lengths and VARIABLE.search(str(self._setting.values.get(name, "$(params.x)"))):
            return [f"${{{member('input', name)}[{i}]}}" for i in range(self._setting.lengths[name])]
        if not isinstance(values, list) or VARIABLE.search(str(values)):
            self._report.gap(
                path, "the number of arguments must be known before the run; pass the array as one argument"
            )
            return []
        return [as_text(each).replace("${", "$${") for each in values]

    def _variable(self, variable: Any, path: str) -> Any:
        if not isinstance(variable, dict) or variable.get("value") is None:
            return self._plain(variable, path)
        return {**variable, "value": self._evaluated(as_text(variable["value"]), f"{path}.value")}

    def _evaluated(self, text: str, path: str) -> str:
        try:
            return translated(text, self._scope.resolve)
        except UntranslatableError as error:
            self._report.gap(path, str(error))
            return VARIABLE.sub("", text).replace("${", "$${")

    def _plain(self, value: Any, path: str) -> Any:
        """A value in which Perdure evaluates no expressions; known parameters are filled in."""
        defaults = {name: each.data.get("default") for name, each in self._params.items()}
        known = {**defaults, **self._setting.values}
        made = substituted(
            value, {name: each for name, each in known.items() if each is not None and "$(" not in str(each)}
        )
        made = substituted_paths(made, self._paths)
        if VARIABLE.search(str(made)):
            self._report.gap(
                path, "variables are evaluated in `image`, `args`, `env`, and scripts; write the value here"
            )
        return made

    @staticmethod
    def _fixed(container: Object, source: Fields) -> Object:
        """A container whose `command` has no expressions: from the first one on, its words are arguments."""
        command = container.get("command", [])
        first = next((i for i, word in enumerate(command) if "${" in word.replace("$${", "")), len(command))
        if command and first == 0:
            source.gap(
                "command", "the program must not be computed; start it with a shell, with the variable as an argument"
            )
        kept = [word.replace("$${", "${") for word in command[:first]]
        rest = [*command[first:], *container.get("args", [])]
        return {**container, **({"command": kept} if kept else {}), **({"args": rest} if rest else {})}


def not_expanded_but_variables(text: str) -> str:
    """A script for `args` in which Kubernetes expands nothing, with the variables of Tekton as they are."""
    made, end = "", 0
    for found in VARIABLE.finditer(text):
        made += not_expanded(text[end : found.start()]) + found[0]
        end = found.end()
    return made + not_expanded(text[end:])


def substituted(value: Any, params: Mapping[str, Any]) -> Any:
    """A value in which the parameters whose values are known are replaced."""
    if isinstance(value, list):
        return [substituted(each, params) for each in value]
    if isinstance(value, dict):
        return {key: substituted(each, params) for key, each in value.items()}
    if not isinstance(value, str):
        return value
    for name, known in params.items():
        fields = known.items() if isinstance(known, dict) else ()
        for form in (f"$(params.{name})", f'$(params["{name}"])', f"$(params['{name}'])"):
            value = value.replace(form, as_text(known))
        for key, each in fields:
            value = value.replace(f"$(params.{name}.{key})", as_text(each))
        for i, each in enumerate(known if isinstance(known, list) else ()):
            value = value.replace(f"$(params.{name}[{i}])", as_text(each))
    return value


def substituted_paths(value: Any, paths: Mapping[str, str]) -> Any:
    """A value in which the paths of workspaces and results are filled in."""
    if isinstance(value, list):
        return [substituted_paths(each, paths) for each in value]
    if isinstance(value, dict):
        return {key: substituted_paths(each, paths) for key, each in value.items()}
    if isinstance(value, str):
        for name, path in paths.items():
            value = value.replace(f"$({name})", path)
    return value
