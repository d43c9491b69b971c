"""Reads a scenario and its manifests: the Workflow or run to simulate, and the Workflows that it may start as children."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import pydantic

from perdure.api.json_values import Json
from perdure.api.kinds.retrypolicy import RetryPolicy, RetryPolicyChoice, RetryPolicySpec
from perdure.api.kinds.schedule import Schedule
from perdure.api.kinds.steps import ChildWorkflow
from perdure.api.kinds.workflow import Workflow, WorkflowSpec
from perdure.api.kinds.workflowdefaults import WorkflowDefaults
from perdure.api.kinds.workflowlimit import WorkflowLimit
from perdure.api.kinds.workflowrun import WorkflowRun, WorkflowRunSpec
from perdure.api.labels import API_VERSION, GROUP
from perdure.api.models import ApiModel, ObjectMeta, Resource, mistakes
from perdure.api.names import LOG_ARTIFACT, RESULT_ARTIFACT
from perdure.api.times import format_time
from perdure.language.checks import check
from perdure.language.compiler import NO_STEPS
from perdure.language.defaults import NO_DEFAULTS, NamespaceDefaults, with_run_defaults
from perdure.language.expressions import ExpressionError
from perdure.language.program import Program
from perdure.language.reuse import in_namespace, is_library
from perdure.language.schedule_input import evaluated_input
from perdure.schedule.calendar import InvalidTimesError
from perdure.schedule.run_manifests import schedule_scope, scheduled_run
from perdure.schedule.state import ScheduledRun, ScheduleState, Start
from perdure.schedule.status import has_times
from perdure.schedule.times import EARLIEST, LATEST, Times
from perdure.simulation.scenario import Scenario

_Kind = TypeVar("_Kind", bound=Resource)
_Model = TypeVar("_Model", bound=ApiModel)


class BadFileError(Exception):
    """A manifest or a scenario is not valid. The message has one line per error, with file, place and remedy."""

    def __init__(self, *mistaken: str) -> None:
        super().__init__("\n".join(mistaken))


@dataclass(frozen=True, slots=True)
class Manifest:
    """One document of a file."""

    source: str
    """The file it was read from."""
    data: Any
    extra: bool = False
    """Whether other manifests only refer to it: it is not simulated unless the scenario names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The Workflow or run to simulate."""

    name: str
    namespace: str
    workflow_type: str
    program: Program
    spec: WorkflowRunSpec
    annotations: Mapping[str, str] = field(default_factory=dict)
    """The annotations of a run that a Schedule starts."""
    start: datetime
    """When the run starts."""


@dataclass(frozen=True, slots=True)
class Definitions:
    """The Workflow or run to simulate, and, by name, the Workflows that it may start."""

    target: Target
    programs: Mapping[str, Program]
    limits: Mapping[str, WorkflowLimit]
    schedules: tuple[str, ...] = ()
    """The Schedules in the files that start the Workflow, if the scenario names none of them."""


def read_scenario(data: Any, source: str) -> Scenario:
    """Read a scenario.

    Args:
        data: The decoded document; None is the scenario with all defaults.
        source: The file it was read from.

    Raises:
        BadFileError: The document is not a valid scenario.
    """
    if data is not None and not isinstance(data, dict):
        raise BadFileError(f"{source}: a scenario must be an object, such as `input: {{}}`")
    try:
        return Scenario.parse(data or {})
    except pydantic.ValidationError as error:
        raise BadFileError(*(f"{source}: {mistake}" for mistake in mistakes(error))) from error


def read_definitions(manifests: Iterable[Manifest], scenario: Scenario, source: str) -> Definitions:
    """Find the Workflow or run to simulate, and compile it.

    Args:
        manifests: The documents of all files.
        scenario: The scenario. It selects one of several, and names activities and children.
        source: The file of the scenario.

    Raises:
        BadFileError: A manifest is not valid, or it is not clear what to simulate.
    """
    documents = _Documents()
    for manifest in manifests:
        documents.add(manifest)
    definitions = documents.definitions(scenario, source)
    _check_names(definitions, scenario, source)
    return definitions


def read_policies(manifests: Iterable[Manifest]) -> dict[str, RetryPolicySpec]:
    """Return the RetryPolicies of files, by name.

    Raises:
        BadFileError: A manifest is not valid.
    """
    documents = _Documents()
    for manifest in manifests:
        documents.add(manifest)
    return {name: found.spec for name, (_, found) in documents.policies.items()}


@dataclass(slots=True)
class _Documents:
    """The documents of the files by kind and name, each with its file."""

    workflows: dict[str, tuple[str, Workflow]] = field(default_factory=dict)
    runs: dict[str, tuple[str, WorkflowRun]] = field(default_factory=dict)
    policies: dict[str, tuple[str, RetryPolicy]] = field(default_factory=dict)
    limits: dict[str, tuple[str, WorkflowLimit]] = field(default_factory=dict)
    schedules: dict[str, tuple[str, Schedule]] = field(default_factory=dict)
    defaults: list[tuple[str, WorkflowDefaults]] = field(default_factory=list)
    extras: set[str] = field(default_factory=set)
    libraries: list[tuple[str, str, Json]] = field(default_factory=list)
    """The Workflows: namespace, name, and spec without names of RetryPolicies."""

    def add(self, manifest: Manifest) -> None:
        """Add a document. Documents of other kinds are skipped."""
        data = manifest.data
        if not isinstance(data, dict) or "kind" not in data:
            raise BadFileError(f"{manifest.source}: must be a manifest with `apiVersion: {API_VERSION}` and a `kind`")
        if not str(data.get("apiVersion")).startswith(f"{GROUP}/"):
            return
        match data["kind"]:
            case "Workflow":
                self._keep(self.workflows, Workflow, manifest)
            case "WorkflowRun":
                self._keep(self.runs, WorkflowRun, manifest)
            case "RetryPolicy":
                self._keep(self.policies, RetryPolicy, manifest)
            case "WorkflowLimit":
                self._keep(self.limits, WorkflowLimit, manifest)
            case "Schedule":
                self._keep(self.schedules, Schedule, manifest)
            case "WorkflowDefaults":
                found: dict[str, tuple[str, WorkflowDefaults]] = {}
                self._keep(found, WorkflowDefaults, manifest)
                self.defaults += found.values()
            case "Scenario":
                raise BadFileError(f"{manifest.source}: is a scenario; name it with --scenario")
            case _:
                pass

    def _keep(self, where: dict[str, tuple[str, _Kind]], kind: type[_Kind], manifest: Manifest) -> None:
        try:
            found = kind.parse(manifest.data)
        except pydantic.ValidationError as error:
            raise BadFileError(*(f"{manifest.source}: {mistake}" for mistake in mistakes(error))) from error
        name = found.metadata.name or found.metadata.generate_name.rstrip("-.")
        if not name:
            raise BadFileError(f"{manifest.source}: metadata.name: must be set")
        before = where.get(name)
        if before is not None and before[1] != found:
            what = f"{kind.__name__} `{name}`"
            raise BadFileError(f"{manifest.source}: {what} is defined differently in {before[0]}; remove one of them")
        where[name] = (manifest.source, found)
        if manifest.extra and before is None:
            self.extras.add(f"{kind.__name__}/{name}")

    def definitions(self, scenario: Scenario, source: str) -> Definitions:
        """Compile all documents, and choose the Workflow or run to simulate."""
        self.libraries = [
            (found.metadata.namespace, name, self._resolve(found.spec, "spec", where).dump())
            for name, (where, found) in self.workflows.items()
        ]
        programs = {
            name: self._compile(where, found.spec, "spec", found.metadata.namespace)
            for name, (where, found) in self.workflows.items()
            if not is_library(found.spec.dump())
        }
        limits = {name: found for name, (_, found) in self.limits.items()}
        if scenario.schedule is not None:
            return Definitions(self._scheduled(scenario, source, programs), programs, limits)
        run, workflow = self._choose(scenario, source)
        if run is None:
            if workflow not in programs:
                where = self.workflows[workflow][0]
                raise BadFileError(f"{where}: spec.steps: {NO_STEPS.message}: other Workflows use `{workflow}`")
            spec = WorkflowRunSpec.parse({"workflow": {"name": workflow}})
            spec = with_run_defaults(spec, self._defaults(self.workflows[workflow][1].metadata.namespace))
            return Definitions(
                Target(
                    name=workflow,
                    namespace="default",
                    workflow_type=workflow,
                    program=programs[workflow],
                    spec=spec,
                    start=scenario.start_time,
                ),
                programs,
                limits,
                tuple(
                    name
                    for name, (_, found) in self.schedules.items()
                    if (reference := found.spec.workflow_run_template.spec.workflow) and reference.name == workflow
                ),
            )
        where, found = self.runs[run]
        workflow, program, spec = self._program_of(found.spec, where, found.metadata, run, programs, path="spec")
        target = Target(
            name=run,
            namespace=found.metadata.namespace or "default",
            workflow_type=workflow,
            program=program,
            spec=spec,
            start=scenario.start_time,
        )
        return Definitions(target, programs, limits)

    def _program_of(
        self,
        spec: WorkflowRunSpec,
        where: str,
        meta: ObjectMeta,
        run: str,
        programs: Mapping[str, Program],
        *,
        path: str,
    ) -> tuple[str, Program, WorkflowRunSpec]:
        """Return the workflow type and the program of a run, and its spec without names of other objects.

        Args:
            spec: The spec as written.
            where: The file.
            meta: The metadata of the object with the spec.
            run: The name of the run.
            programs: The programs of the Workflows.
            path: The path of the spec in its file.
        """
        spec = with_run_defaults(spec, self._defaults(meta.namespace))
        if spec.inline is not None:
            program = self._compile(where, spec.inline, f"{path}.inline", meta.namespace)
            return run, program, self._resolve(spec.model_copy(update={"inline": program.spec}), path, where)
        if spec.activity is not None:
            raise BadFileError(
                f"{where}: {path}.activity: SDK workers run standalone activities, which are not simulated"
            )
        if spec.nexus_operation is not None:
            raise BadFileError(
                f"{where}: {path}.nexusOperation: SDK workers handle Nexus operations, which are not simulated"
            )
        workflow = ((spec.workflow and spec.workflow.name) or "").rpartition("/")[2]
        if workflow not in programs:
            raise BadFileError(
                f"{where}: {path}.workflow: there is no Workflow `{workflow}` in the files, which have "
                f"{_names(programs)}; include its file"
            )
        return workflow, programs[workflow], self._resolve(spec, path, where)

    def _scheduled(self, scenario: Scenario, source: str, programs: Mapping[str, Program]) -> Target:
        """Build the run that a Schedule starts, as the operator does."""
        planned = scenario.schedule
        assert planned is not None
        name = planned.name or (next(iter(self.schedules)) if len(self.schedules) == 1 else "")
        if name not in self.schedules:
            known = _names(self.schedules)
            raise BadFileError(
                f"{source}: schedule.name: there is no Schedule `{name}` in the files, which have {known}"
                if name
                else f"{source}: schedule: the files must have one Schedule, or set `schedule.name`; they have {known}"
            )
        where, schedule = self.schedules[name]
        path = "spec.workflowRunTemplate.spec"
        try:
            times = Times(schedule.spec)
            first = next(times.nominal(scenario.start_time - timedelta(seconds=1)), None)
            if planned.scheduled_time and not planned.triggered and has_times(schedule.spec):
                _check_time(planned.scheduled_time, times, source)
        except InvalidTimesError as error:
            raise BadFileError(f"{where}: {error.path}: {error.sentence}") from error
        due = planned.scheduled_time or (scenario.start_time if planned.triggered else first)
        if due is None:
            raise BadFileError(f"{source}: schedule.scheduledTime: the Schedule has no time from `startTime`; set one")
        if not EARLIEST <= due < LATEST:
            raise BadFileError(
                f"{source}: schedule.scheduledTime: must be at {format_time(EARLIEST)} or later, and before {format_time(LATEST)}"
            )
        start = Start(
            nominal=due, actual=due, triggered=planned.triggered, request="simulated" if planned.triggered else ""
        )
        running = ScheduledRun(name=start.run_name(name), start=start, started=due)
        state = ScheduleState(
            cursor=due, handled_after=due, result=planned.last_completion_result, failure=planned.last_failure
        )
        namespace = schedule.metadata.namespace or "default"
        obj = {"metadata": {"name": name, "namespace": namespace, "uid": name}, "spec": schedule.spec.dump()}
        body = scheduled_run(obj, running, state, times)
        try:
            input_ = evaluated_input(schedule.spec.workflow_run_template.spec, schedule_scope(body))
        except ExpressionError as error:
            raise BadFileError(f"{where}: {path}.{error}") from error
        written = WorkflowRunSpec.parse({**body["spec"], "input": input_})
        workflow, program, spec = self._program_of(written, where, schedule.metadata, running.name, programs, path=path)
        return Target(
            name=running.name,
            namespace=namespace,
            workflow_type=workflow,
            program=program,
            spec=spec,
            annotations=body["metadata"]["annotations"],
            start=scenario.start_time if "start_time" in scenario.model_fields_set else due,
        )

    def _choose(self, scenario: Scenario, source: str) -> tuple[str | None, str]:
        """Choose the run or the Workflow to simulate."""
        wanted = scenario.workflow
        runs = [n for n in self.runs if f"WorkflowRun/{n}" not in self.extras]
        if wanted:
            of = [n for n in runs if (ref := self.runs[n][1].spec.workflow) is not None and ref.name == wanted]
            if wanted in self.runs or len(of) == 1:
                return (wanted if wanted in self.runs else of[0]), ""
            if wanted in self.workflows:
                return None, wanted
            known = _names([*self.runs, *self.workflows])
            raise BadFileError(f"{source}: workflow: there is no `{wanted}` in the files, which have {known}")
        workflows = [n for n in self.workflows if f"Workflow/{n}" not in self.extras]
        used = {each for n in workflows for each in _used_by(self.workflows[n][1].spec) if each != n}
        roots = [n for n in workflows if n not in used] if not runs else []
        if len(runs) == 1:
            return runs[0], ""
        if len(roots) == 1:
            return None, roots[0]
        if runs or workflows:
            known = _names(runs or workflows)
            raise BadFileError(f"{source}: the files have {known}; choose one with `workflow: NAME`")
        raise BadFileError(f"{source}: the files contain no Workflow and no WorkflowRun; include a manifest of either")

    def _compile(self, where: str, spec: WorkflowSpec, path: str, namespace: str) -> Program:
        libraries = in_namespace(self.libraries, namespace)
        defaults = self._defaults(namespace)
        checked = check(self._resolve(spec, path, where), libraries=libraries, namespace=namespace, defaults=defaults)
        problems = [
            f"{library.path}: there is no Workflow `{library.workflow}` in the files, which have {_names(self.workflows)}; "
            f"include its file{', and this namespace in its `allowedNamespaces`' if '/' in library.workflow else ''}"
            for library in checked.libraries
        ]
        problems += [
            f"{place}: there is no WorkflowLimit `{limit}` in the files, which have {_names(self.limits)}; name its file as well"
            for place, limit in checked.limits
            if limit not in self.limits
        ]
        problems = problems or list(map(str, checked.errors))
        if problems:
            raise BadFileError(*(f"{where}: {problem.replace('spec', path, 1)}" for problem in problems))
        return checked.program

    def _defaults(self, namespace: str) -> NamespaceDefaults:
        """The defaults of a namespace; those of any namespace if one of the two is not known."""
        for where, found in self.defaults:
            if not (namespace and found.metadata.namespace) or namespace == found.metadata.namespace:
                return NamespaceDefaults(self._resolve(found.spec, "spec", where).dump(), found.metadata.generation)
        return NO_DEFAULTS

    def _resolve(self, model: _Model, path: str, where: str) -> _Model:
        """Return a model with each named RetryPolicy in place of its name."""
        changes = {}
        for name, info in type(model).model_fields.items():
            before = getattr(model, name)
            after = self._resolved(before, f"{path}.{info.alias or name}", where)
            if after is not before:
                changes[name] = after
        return model.model_copy(update=changes) if changes else model

    def _resolved(self, value: Any, path: str, where: str) -> Any:
        if isinstance(value, RetryPolicyChoice) and value.name is not None:
            if value.name not in self.policies:
                raise BadFileError(
                    f"{where}: {path}.name: there is no RetryPolicy `{value.name}` in the files, which have "
                    f"{_names(self.policies)}; include its file"
                )
            policy = self.policies[value.name][1].spec
            return RetryPolicyChoice(
                exponential=policy.exponential,
                cloud_scheduler=policy.cloud_scheduler,
                maximum_losses=policy.maximum_losses,
            )
        if isinstance(value, ApiModel):
            return self._resolve(value, path, where)
        if isinstance(value, list):
            after = [self._resolved(item, f"{path}[{i}]", where) for i, item in enumerate(value)]
            return after if any(a is not b for a, b in zip(after, value, strict=True)) else value
        return value


def _check_time(due: datetime, times: Times, source: str) -> None:
    """Check that a scheduled time is one of the Schedule."""
    before = times.latest(due - timedelta(seconds=1), _NEAR)
    here = next(times.nominal(due - timedelta(seconds=1)), None)
    if here == due:
        return
    near = " and ".join(format_time(each) for each in (before, here) if each is not None)
    found = f"the nearest times are {near}" if near else "it has none near it"
    raise BadFileError(
        f"{source}: schedule.scheduledTime: {format_time(due)} is not a time of the Schedule; {found}. For a run that a user "
        "triggers, set `schedule.triggered: true`"
    )


_NEAR: Final = timedelta(days=366)
"""How far before a scheduled time another one is looked for."""


def _used_by(spec: WorkflowSpec) -> set[str]:
    """The Workflows that a definition starts as children, or copies parts of."""
    return children_of(spec) | {source.workflow for source in spec.copied()}


def children_of(spec: WorkflowSpec) -> set[str]:
    """The Workflows that a definition starts as children."""
    return {child.workflow.name for child in _models(spec, ChildWorkflow) if child.workflow.name}


def _models(value: Any, kind: type[_Model]) -> Iterator[_Model]:
    """Yield all models of a kind within a value."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, ApiModel):
        for name in type(value).model_fields:
            yield from _models(getattr(value, name), kind)
    elif isinstance(value, list):
        for item in value:
            yield from _models(item, kind)


def _check_names(definitions: Definitions, scenario: Scenario, source: str) -> None:
    """Check that the names in a scenario exist. A misspelled name would have no effect otherwise."""
    programs = [definitions.target.program, *definitions.programs.values()]
    activities = {name for program in programs for name in program.activities}
    services = {each.activity for program in programs for flow in program.flows.values() for each in flow.services}
    children = {name for program in programs for name in children_of(program.spec)}
    cacheable = {name for program in programs for name, each in program.activities.items() if each.cache is not None}
    expected = scenario.expect.attempts if scenario.expect else {}
    mistaken = [
        f"{source}: {path}.{name}: unknown {what}; known: {_names(sorted(known))}"
        for path, what, names, known in (
            ("activities", "activity", scenario.activities, activities),
            ("expect.attempts", "activity", expected, activities),
            ("cached", "activity with `cache`", scenario.cached, cacheable),
            ("children", "child workflow", scenario.children, children),
        )
        for name in names
        if name not in known
    ]
    mistaken += [
        f"{source}: children.{name}: the Workflow is in the files, so it is simulated itself; script its activities"
        for name in scenario.children
        if name in definitions.programs
    ]
    outputs = _outputs(programs)
    mistaken += [
        f"{source}: activities.{name}[{i}].artifacts.{artifact}: unknown output artifact; known: "
        f"{_names(sorted(outputs[name]))}"
        for name in scenario.activities.keys() & activities
        for i, entry in enumerate(scenario.activities[name])
        for artifact in entry.artifacts or ()
        if artifact not in outputs[name]
    ]
    if scenario.strict:
        mistaken += [
            f"{source}: activities: has no entry for `{name}`; write `{name}: [{{output: …}}]`, or remove `strict`"
            for name in sorted(activities - services - scenario.activities.keys())
        ]
        mistaken += [
            f"{source}: children: has no entry for `{name}`; name its file under `workflows`, or write "
            f"`{name}: [{{output: …}}]`"
            for name in sorted(children - scenario.children.keys() - definitions.programs.keys())
        ]
    if mistaken:
        raise BadFileError(*mistaken)


def _outputs(programs: Iterable[Program]) -> dict[str, set[str]]:
    """The output artifacts of activities, by name."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for program in programs:
        for name, activity in program.activities.items():
            artifacts = activity.artifacts
            if artifacts is not None:
                found[name].update(each.name for each in artifacts.outputs)
                found[name] |= {LOG_ARTIFACT} if artifacts.archive_logs else set()
                found[name] |= {RESULT_ARTIFACT} if artifacts.large_results else set()
    return found


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"
