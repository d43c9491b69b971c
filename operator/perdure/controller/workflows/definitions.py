"""Find, check, compile, and cache the definitions of WorkflowRuns.

A large definition takes seconds to compile. It is compiled in a thread, so that everything else continues; a reconciliation that
needs it is repeated later, and holds no worker. Namespaces take turns, and each has at most one thread, so that a namespace with
many large definitions only delays itself.

Threads, not processes: compiled definitions consist of closures, which cannot be passed to another process, and every
process takes 80 MiB. A computing thread delays the event loop by the switch interval of the interpreter for each response
that the loop processes: see `handlers.main`.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

import orjson
import pydantic
import structlog

from perdure.api.json_values import MAX_DEPTH, mapping, nests_deeper
from perdure.api.kinds.workflow import Activity, WorkflowSpec
from perdure.api.kinds.workflowrun import WorkflowRunSpec
from perdure.api.kinds.workspace import Workspace
from perdure.api.models import mistakes_by_path, unknown_field
from perdure.api.names import DEFAULTS_NAME
from perdure.api.reasons import ConditionReason
from perdure.api.search_attributes import unfit
from perdure.controller.errors import NotReadyError, NotYetError
from perdure.controller.queue import FairPool
from perdure.controller.reconcile.newer_states import NewerStateError
from perdure.controller.workflows.revisions import Revisions
from perdure.controller.workflows.version_activities import VersionActivities
from perdure.engine import events as ev
from perdure.engine.failures import Failure, FailureKind
from perdure.engine.state import PODS_QUEUE
from perdure.engine.versioning import DeploymentVersion
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.language.checks import CheckedDefinition, check, default_mistakes, options
from perdure.language.defaults import (
    NO_DEFAULTS,
    NamespaceDefaults,
    completed,
    is_of_defaults,
    of_defaults,
    with_handlers,
)
from perdure.language.program import Finding, InvalidWorkflowError, Program, Severity
from perdure.language.reuse import Composition, Library, MissingLibrary, allows, at_home, compose, is_of_library
from perdure.observe import metrics
from perdure.runtime.attempts import definition_name
from perdure.runtime.pods.workspaces import WorkspaceUse
from perdure.runtime.revisions import Content, Reference

_log = structlog.get_logger("perdure.definitions")

MAX_INPUT = 256 * 1024
"""Maximum size of an input, in bytes of JSON."""
_UNPARSED: dict[str, Any] = {"steps": []}
"""Replaces an inline definition that is parsed elsewhere."""
_FORBIDDEN: Final = 403
CHECK_AGAIN = timedelta(minutes=1)
"""Delay before a library of another namespace is read again."""
THREADS = 2
"""Number of threads that compile. With more threads, each of them and the event loop get a smaller share of the interpreter."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Definition:
    """The definition that a run executes."""

    program: Program
    workflow_type: str
    """Name of the Workflow, or of the run if its definition is inline."""
    content: Content | None
    """The definition as JSON if a part of it came from a Workflow: the run keeps it, so that later edits do not affect it."""
    revision: Reference | None = None
    """The WorkflowRevision that has it; None: the run itself does."""
    sources: tuple[dict[str, Any], ...] = ()
    """What it has copied from libraries, and taken from defaults, as in `status.sources`."""
    libraries: frozenset[str] = frozenset()
    """The names of these libraries."""
    defaults: NamespaceDefaults = NO_DEFAULTS
    """The defaults of the namespace, for a run that starts."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class CompiledDefinition:
    """A compiled definition, and the findings of the checks."""

    program: Program | None
    """The program; None if the definition cannot be executed."""
    broken: tuple[Finding, ...]
    """Why it cannot be executed."""
    findings: tuple[Finding, ...]
    """All findings, including warnings."""
    retry_policies: frozenset[str] = frozenset()
    """The RetryPolicies that it names."""


@dataclass(frozen=True, slots=True)
class CalledActivity:
    """An activity of a Workflow that code calls in a pod."""

    definition: Activity
    workspaces: Mapping[str, Workspace]
    """The workspaces of the Workflow, by name."""


class Definitions:
    """Finds and compiles definitions; equal ones are compiled once, including invalid ones."""

    def __init__(
        self, client: kube.Client, compiler: "Callable[[dict[str, Any]], CompiledDefinition] | None" = None
    ) -> None:
        """Create it without definitions. `compiler` compiles one in a thread; None: `compile_definition` does."""
        self.cached_bytes = 8 * 1024 * 1024
        """Maximum size of cached definitions, in bytes of JSON; compiled definitions take a multiple of it."""
        self.revisions = Revisions(client)
        """Stores and reads the WorkflowRevisions."""
        self.versions = VersionActivities(client)
        """Finds the revisions with the activities of versions of workers."""
        self._shared: WeakValueDictionary[tuple[str, str, str], Definition] = WeakValueDictionary()
        """The definitions of the runs in memory that refer to a revision, by namespace, hash, and workflow type."""
        self._client = client
        self._compiler = compiler or compile_definition
        self._compiled: OrderedDict[bytes, CompiledDefinition] = OrderedDict()
        self._cached = 0
        self._in_use: WeakValueDictionary[bytes, CompiledDefinition] = WeakValueDictionary()
        """Definitions that callers still hold, cached or not: a caller that comes back finds its definition."""
        self._executor = ThreadPoolExecutor(THREADS, thread_name_prefix="compile")
        self._pool = FairPool(slots=THREADS, each=1)
        self._compiling: dict[tuple[str, bytes], asyncio.Future[CompiledDefinition]] = {}
        self._running: dict[bytes, asyncio.Future[CompiledDefinition]] = {}

    async def find(self, namespace: str, name: str, spec: WorkflowRunSpec, inline: Any) -> Definition:
        """Find the definition for a run that starts now, which is pinned to it.

        Args:
            namespace: Namespace of the run.
            name: Name of the run.
            spec: Spec of the run.
            inline: The inline definition, as stored in the API server; None if there is none.

        Raises:
            NotYetError: The definition is being compiled.
            NotReadyError: The Workflow is missing or invalid; someone can fix it.
            InvalidWorkflowError: The spec of the run is not valid. It cannot change, so the run fails.
        """
        defaults = await self.defaults(namespace)
        if wrong := default_mistakes(defaults.spec):
            message = f"{'; '.join(str(of_defaults(each)) for each in wrong)}; the run starts once you fix it"
            raise NotReadyError(ConditionReason.INVALID_WORKFLOW, message)
        if inline is not None:
            return await self._of_run(namespace, name, inline, defaults)
        workflow = spec.workflow.name if spec.workflow is not None else None
        if workflow is None:
            raise InvalidWorkflowError([Finding("spec.workflow", "must name a Workflow")])
        workflow = workflow.removeprefix(f"{namespace}/")
        if spec.workflow is not None and spec.workflow.revision is not None:
            return await self._of_chosen_revision(namespace, workflow, spec.workflow.revision, defaults)
        found = await self._library(namespace, workflow)
        if found is None:
            missing = MissingLibrary("", workflow).sentence(namespace).removeprefix(": ")
            message = f"{missing}; the run starts once it exists"
            uses = frozenset({workflow})
            raise NotReadyError(ConditionReason.WORKFLOW_NOT_FOUND, message, _check_again(uses), uses)
        unusable = f"Workflow `{workflow}` cannot be run: "
        composed = await self._complete(namespace, found.spec, defaults, unusable, "spec", home=workflow)
        uses = composed.libraries | {workflow}
        try:
            program = self._program(namespace, composed)
        except InvalidWorkflowError as error:
            message = f"{unusable}{error}; the run starts once you fix it"
            raise NotReadyError(ConditionReason.INVALID_WORKFLOW, message, _check_again(uses), uses) from error
        content = content_of(workflow, dict(found.spec), composed)
        return Definition(program, workflow, content, sources=composed.sources, libraries=uses, defaults=defaults)

    async def _of_chosen_revision(
        self, namespace: str, workflow: str, name: str, defaults: NamespaceDefaults
    ) -> Definition:
        """Find the definition of a run that names a revision of its Workflow."""
        content = await self.revisions.named(namespace, name, workflow)
        try:
            program = self.compile(namespace, content.definition)
        except InvalidWorkflowError as error:
            message = f"WorkflowRevision `{name}` cannot be run: {error}; start the run with another one"
            raise NotReadyError(ConditionReason.INVALID_WORKFLOW, message) from error
        return Definition(program, workflow, content, defaults=defaults)

    async def _of_run(
        self, namespace: str, name: str, inline: dict[str, Any], defaults: NamespaceDefaults
    ) -> Definition:
        """Find the definition of a run that has an inline one. It waits for what a change of another object can fix."""
        composed = await self._complete(namespace, inline, defaults, "", "spec.inline")
        uses = composed.libraries
        try:
            program = self._program(namespace, composed)
        except InvalidWorkflowError as error:
            findings = [found if is_of_defaults(found.path) else found.moved("spec.inline") for found in error.findings]
            if not all(is_of_library(found) or is_of_defaults(found.path) for found in error.findings):
                raise InvalidWorkflowError(findings) from error
            where = "that Workflow" if all(map(is_of_library, error.findings)) else "the WorkflowDefaults"
            message = f"{'; '.join(map(str, findings))}; the run starts once you fix {where}"
            raise NotReadyError(ConditionReason.INVALID_WORKFLOW, message, _check_again(uses), uses) from error
        content = content_of(None, inline, composed) if composed.sources else None
        return Definition(program, name, content, sources=composed.sources, libraries=uses, defaults=defaults)

    async def _complete(
        self,
        namespace: str,
        spec: dict[str, Any],
        defaults: NamespaceDefaults,
        unusable: str,
        path: str,
        *,
        home: str = "",
    ) -> Composition:
        """Complete the definition of a run with the parts of other Workflows and the defaults of its namespace.

        Args:
            namespace: Namespace of the run.
            spec: The definition.
            defaults: The defaults.
            unusable: How the message begins if one of the Workflows is missing.
            path: Where the definition is.
            home: The Workflow that has it; empty: the run.

        Raises:
            NotReadyError: One of the Workflows is missing.
        """
        composed = await self.complete(namespace, spec, defaults, home)
        if composed.missing:
            uses = composed.libraries | ({home} if home else frozenset())
            message = f"{unusable}{_missing(composed, namespace, path)}; the run starts once there is one"
            raise NotReadyError(ConditionReason.WORKFLOW_NOT_FOUND, message, _check_again(uses), uses)
        return composed

    async def complete(
        self, namespace: str, spec: dict[str, Any], defaults: NamespaceDefaults, home: str = ""
    ) -> Composition:
        """Copy the parts that a definition takes from other Workflows and from the defaults of its namespace.

        Args:
            namespace: Namespace of what runs it.
            spec: The definition.
            defaults: The defaults.
            home: The Workflow that has it, of another namespace by `<namespace>/<name>`; empty: none.

        Raises:
            RequestError: The Kubernetes API request failed.
        """
        handled = with_handlers(at_home(spec, home), defaults.spec)
        return completed(await self.compose(namespace, handled.definition), handled, defaults)

    async def defaults(self, namespace: str) -> NamespaceDefaults:
        """Read the defaults of a namespace, which are empty if it has no WorkflowDefaults.

        Raises:
            RequestError: The Kubernetes API request failed.
        """
        try:
            found = await self._client.get(kube.path(kube.PERDURE, namespace, "workflowdefaults", DEFAULTS_NAME))
        except kube.NotFoundError:
            return NO_DEFAULTS
        return NamespaceDefaults(mapping(found.get("spec")), found["metadata"].get("generation", 0))

    async def compose(self, namespace: str, spec: dict[str, Any]) -> Composition:
        """Copy the parts that a definition takes from other Workflows.

        Raises:
            RequestError: The Kubernetes API request failed.
        """
        libraries: dict[str, Library | None] = {}
        while (composed := compose(spec, libraries, namespace)).unread:
            for name in sorted(composed.unread):
                libraries[name] = await self._library(namespace, name)
        return composed

    async def _library(self, namespace: str, reference: str) -> Library | None:
        """Read a library for a definition in a namespace; None if it does not exist, or does not allow that namespace."""
        where, _, name = reference.rpartition("/")
        try:
            found = await self._client.get(kube.path(kube.PERDURE, where or namespace, "workflows", name))
        except kube.NotFoundError:
            return None
        except kube.ApiError as error:
            if error.status != _FORBIDDEN or not where:
                raise
            return None  # of a namespace that this operator does not serve
        if where and not allows(found["spec"], namespace):
            return None
        return Library(found["spec"], found["metadata"].get("generation", 0))

    def _program(self, namespace: str, composed: Composition) -> Program:
        """Compile a definition with the parts that it copies.

        Raises:
            NotYetError: The definition is being compiled.
            InvalidWorkflowError: The definition cannot be executed; the findings have paths of the definition as written.
        """
        if composed.findings:
            raise InvalidWorkflowError(list(composed.findings))
        try:
            return self.compile(namespace, composed.definition)
        except InvalidWorkflowError as error:
            raise InvalidWorkflowError(composed.located(error.findings)) from error

    async def activity(
        self, namespace: str, workflow: str, name: str, version: DeploymentVersion | None
    ) -> CalledActivity | Failure:
        """Find an activity of a Workflow, for code whose activities run in pods; return a failure if there is none.

        Args:
            namespace: The namespace of the run.
            workflow: Name of the Workflow.
            name: Name of the activity.
            version: The version of the workers that the run is pinned to, whose activities may be those of an earlier revision;
                None: it is not pinned.

        Raises:
            NotYetError: The Workflow is being compiled.
            RequestError: The Kubernetes API request failed.
        """
        try:
            if version is not None and (program := await self._of_version(namespace, workflow, version)) is not None:
                return _activity_of(program, workflow, name)
            found = await self._client.get(kube.path(kube.PERDURE, namespace, "workflows", workflow))
            composed = await self.compose(namespace, found["spec"])
            if composed.missing:
                return _no_activity(f"Workflow `{workflow}` cannot be run: {_missing(composed, namespace)}")
            program = self._program(namespace, composed)
        except (kube.NotFoundError, ValueError):
            return _no_activity(f"there is no Workflow `{workflow}` in namespace `{namespace}`")
        except InvalidWorkflowError as error:
            return _no_activity(f"Workflow `{workflow}` cannot be run: {error}")
        return _activity_of(program, workflow, name)

    async def workspace_use(
        self,
        namespace: str,
        definition: Definition | None,
        events: Iterable[ev.AnyEvent],
        version: DeploymentVersion | None,
    ) -> WorkspaceUse:
        """Find which activities of a run mount which workspaces.

        Args:
            namespace: The namespace of the run.
            definition: The definition of the run; None if code decides, which calls activities of Workflows.
            events: The history of a run of code.
            version: The version of the workers that the run of code is pinned to; None: it is not pinned.

        Raises:
            NotYetError: A Workflow is being compiled.
            RequestError: The Kubernetes API request failed.
        """
        if definition is not None:
            spec = definition.program.spec
            return WorkspaceUse(
                activities=definition.program.activities, workspaces={each.name: each for each in spec.workspaces}
            )
        scheduled = (each for each in events if isinstance(each, ev.ActivityTaskScheduled))
        names = {(each.task_queue, each.activity_type, definition_name(each)) for each in scheduled}
        found = {
            key: await self.activity(namespace, queue.removeprefix(PODS_QUEUE), name, version)
            for queue, name, key in sorted(names)
            if queue.startswith(PODS_QUEUE)
        }
        called = {key: each for key, each in found.items() if isinstance(each, CalledActivity)}
        return WorkspaceUse(
            activities={key: each.definition for key, each in called.items()},
            workspaces={name: workspace for each in called.values() for name, workspace in each.workspaces.items()},
        )

    async def _of_version(self, namespace: str, workflow: str, version: DeploymentVersion) -> Program | None:
        """Return the definition that a version of workers was made for; None if it names none, or the revision is lost.

        Raises:
            NotYetError: The definition is being compiled.
            InvalidWorkflowError: This version of the operator can no longer run it.
            RequestError: The Kubernetes API request failed.
        """
        revision = await self.versions.revision(namespace, version, workflow)
        if not revision:
            return None
        try:
            content = await self.revisions.named(namespace, revision, workflow)
        except NotReadyError as error:
            _log.warning(
                "A version uses the current activities", namespace=namespace, version=str(version), reason=error.message
            )
            return None
        return self.compile(namespace, content.definition, pinned=True)

    async def keep(self, namespace: str, definition: Definition) -> Definition:
        """Store the definition of a run that is about to start as a revision, for the run to refer to.

        Returns:
            The definition with its revision; without one if the run must contain it.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        if definition.content is None:
            return definition
        reference = await self.revisions.keep(namespace, definition.content)
        if reference is None:
            return replace(definition, revision=None)
        key = namespace, reference.hash, definition.workflow_type
        known = self._shared.get(key, definition)
        kept = replace(definition, program=known.program, content=known.content, revision=reference)
        self._shared[key] = kept
        return kept

    def held(self) -> list[tuple[str, Content, Reference]]:
        """The revisions of the runs in memory, with their namespaces."""
        found = {
            (namespace, each.revision.name): (namespace, each.content, each.revision)
            for (namespace, _, _), each in list(self._shared.items())
            if each.content is not None and each.revision is not None
        }
        return list(found.values())

    async def pinned(
        self, namespace: str, name: str, spec: WorkflowRunSpec, inline: Any, status: Mapping[str, Any] | None
    ) -> Definition:
        """Return the definition of a started run. `status` is its status; see `find` for the other arguments.

        Raises:
            NotYetError: The definition is being compiled.
            InvalidWorkflowError: This version of the operator can no longer run it.
            NotReadyError: Its WorkflowRevision was deleted.
            NewerStateError: A newer version has stored its WorkflowRevision.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        status = status or {}
        workflow = spec.workflow.name if spec.workflow else None
        workflow = workflow.removeprefix(f"{namespace}/") if workflow else None
        reference = Reference.of(status)
        if reference is not None:
            return await self._of_revision(namespace, workflow or name, workflow, inline, reference)
        snapshot = status.get("definition")
        if snapshot is None:
            if inline is None:
                raise InvalidWorkflowError([Finding("status.definition", "is missing")])
            return Definition(self.compile(namespace, inline, pinned=True), name, None)
        content = Content(workflow=workflow, definition=snapshot, written=inline)
        return Definition(self.compile(namespace, snapshot, pinned=True), workflow or name, content)

    async def _of_revision(
        self, namespace: str, workflow_type: str, workflow: str | None, inline: Any, reference: Reference
    ) -> Definition:
        """The definition of a run that refers to a revision. The runs of one revision share it."""
        key = namespace, reference.hash, workflow_type
        known = self._shared.get(key)
        if known is not None:
            return known
        try:
            content = await self.revisions.read(namespace, reference)
        except NotReadyError:
            restored = await self._restored(namespace, workflow, inline, reference)
            if restored is None:
                raise
            content = restored
        try:
            program = self.compile(namespace, content.definition, pinned=True)
        except InvalidWorkflowError as error:
            if why := newer_definition(content.definition, f"WorkflowRevision `{reference.name}`: spec.definition"):
                raise NewerStateError(why) from error
            raise
        definition = Definition(program, workflow_type, content, reference)
        self._shared[key] = definition
        return definition

    async def _restored(
        self, namespace: str, workflow: str | None, inline: Any, reference: Reference
    ) -> Content | None:
        """Store a lost revision again if the Workflow, or the run itself, still has the same definition."""
        written = inline
        if written is None:
            found = await self._library(namespace, workflow or "")
            if found is None:
                return None
            written = found.spec
        home = workflow or "" if inline is None else ""
        composed = await self.complete(namespace, written, await self.defaults(namespace), home=home)
        content = content_of(workflow, written, composed)
        if content.reference() != reference:
            return None
        await self.revisions.keep(namespace, content)
        return content

    def compile(self, namespace: str, spec: dict[str, Any], *, pinned: bool = False) -> Program:
        """Return a compiled definition, or schedule its compilation.

        Args:
            namespace: The namespace that needs it.
            spec: The definition.
            pinned: Whether it is for a started run, which an error that only causes a later failure must not stop.

        Raises:
            NotYetError: The definition is being compiled.
            InvalidWorkflowError: The definition cannot be executed.
        """
        compiled = self._look(namespace, spec)
        errors = [finding for finding in compiled.findings if finding.severity is Severity.ERROR]
        if errors and not pinned:
            raise InvalidWorkflowError(errors)
        if compiled.program is None:
            raise InvalidWorkflowError(list(compiled.broken))
        return compiled.program

    def findings(self, namespace: str, spec: dict[str, Any]) -> tuple[Finding, ...]:
        """All findings of the static checks of a definition, the errors first.

        Raises:
            NotYetError: The definition is being compiled.
        """
        try:
            return self._look(namespace, spec).findings
        except InvalidWorkflowError as error:
            return tuple(error.findings)

    def retry_policies(self, namespace: str, spec: dict[str, Any]) -> frozenset[str]:
        """The RetryPolicies that a definition names.

        Raises:
            NotYetError: The definition is being compiled.
            InvalidWorkflowError: The definition cannot be stored as JSON.
        """
        return self._look(namespace, spec).retry_policies

    def _look(self, namespace: str, spec: dict[str, Any]) -> CompiledDefinition:
        """Return a compiled and checked definition, or schedule its compilation.

        Raises:
            NotYetError: The definition is being compiled.
            InvalidWorkflowError: The definition cannot be stored as JSON.
        """
        try:
            key = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
        except orjson.JSONEncodeError as error:
            message = f"cannot be stored as JSON: {error}; reduce the nesting of its values"
            raise InvalidWorkflowError([Finding("spec", message)]) from error
        compiled = self._compiled.get(key) or self._in_use.get(key)
        if compiled is None:
            raise NotYetError(self._schedule(namespace, key, spec))
        self._keep(key, compiled)
        return compiled

    def _schedule(self, namespace: str, key: bytes, spec: dict[str, Any]) -> asyncio.Future[CompiledDefinition]:
        """Schedule the compilation of a definition, or join one for another namespace with the same definition."""
        who = namespace, key
        if who not in self._compiling:
            self._compiling[who] = self._pool.submit(namespace, partial(self._compile_once, key, spec))
            self._compiling[who].add_done_callback(lambda _: self._compiling.pop(who, None))
            metrics.DEFINITIONS_WAITING.set(len(self._compiling))
        return self._compiling[who]

    async def _compile_once(self, key: bytes, spec: dict[str, Any]) -> CompiledDefinition:
        found = self._in_use.get(key)
        if found is not None:
            return found
        if key not in self._running:
            self._running[key] = asyncio.get_running_loop().run_in_executor(self._executor, self._compiler, spec)
            self._running[key].add_done_callback(lambda _: self._running.pop(key, None))
        compiled = await asyncio.shield(self._running[key])
        self._in_use[key] = compiled
        metrics.DEFINITIONS_WAITING.set(len(self._compiling) - 1)
        return compiled

    def _keep(self, key: bytes, compiled: CompiledDefinition) -> None:
        if key in self._compiled:
            self._compiled.move_to_end(key)
            return
        self._compiled[key] = compiled
        self._cached += len(key)
        while self._cached > self.cached_bytes and len(self._compiled) > 1:
            oldest, _ = self._compiled.popitem(last=False)
            self._cached -= len(oldest)


def content_of(workflow: str | None, written: dict[str, Any], composed: Composition) -> Content:
    """The content of the revision of a definition.

    Args:
        workflow: Name of the Workflow; None for a definition of a run that has its own.
        written: The definition as written.
        composed: The definition with what it copies.
    """
    as_written = written if composed.definition != written else None
    return Content(workflow=workflow, definition=composed.definition, written=as_written)


def _check_again(libraries: frozenset[str]) -> datetime | None:
    """When to read libraries again: the operator may not watch those of other namespaces."""
    return now() + CHECK_AGAIN if any("/" in name for name in libraries) else None


def _missing(composed: Composition, namespace: str, path: str = "spec") -> str:
    """Name the libraries that do not exist; `path` is the path of the definition."""

    def moved(each: MissingLibrary) -> MissingLibrary:
        return each if is_of_defaults(each.path) else replace(each, path=path + each.path.removeprefix("spec"))

    return "; ".join(moved(each).sentence(namespace) for each in composed.missing)


def _activity_of(program: Program, workflow: str, name: str) -> CalledActivity | Failure:
    definition = program.activities.get(name)
    if definition is None or definition.worker is not None:
        return _no_activity(f"Workflow `{workflow}` has no activity `{name}` that runs in a pod")
    return CalledActivity(definition, {each.name: each for each in program.spec.workspaces})


def _no_activity(message: str) -> Failure:
    return Failure(kind=FailureKind.APPLICATION, type="InvalidActivity", message=message, non_retryable=True)


def compile_definition(
    stored: dict[str, Any], check: Callable[[WorkflowSpec], CheckedDefinition] = check
) -> CompiledDefinition:
    """Compile a definition; returns the program and all findings."""
    if nests_deeper(stored):
        deep = (Finding("spec", f"nests more than {MAX_DEPTH} levels deep; reduce the nesting of its values"),)
        return CompiledDefinition(None, deep, deep)
    try:
        spec = WorkflowSpec.parse(stored)
        checked = check(spec)
    except pydantic.ValidationError as error:
        wrong = tuple(Finding(_in_spec(path), message) for path, message in mistakes_by_path(error))
        return CompiledDefinition(None, wrong, wrong)
    except Exception as error:  # noqa: BLE001 - whatever a definition does to the compiler, who wants it gets an answer
        wrong = (Finding("spec", f"cannot be checked: {type(error).__name__}: {error}; simplify it, and report this"),)
        return CompiledDefinition(None, wrong, wrong)
    program = None if checked.broken else checked.program
    return CompiledDefinition(program, checked.broken, checked.findings, checked.program.retry_policies)


def read_spec(stored: Mapping[str, Any]) -> WorkflowRunSpec:
    """Parse the spec of a run without its inline definition, which is parsed when it is compiled.

    Raises:
        NewerStateError: The spec has a field that only a newer version knows.
        InvalidWorkflowError: The spec is not valid. The API server checks less, for example not whether a date exists.
    """
    if stored.get("inline") is not None:
        stored = {**stored, "inline": _UNPARSED}
    try:
        return WorkflowRunSpec.parse(stored)
    except pydantic.ValidationError as error:
        if why := unknown_field(error, "spec"):
            raise NewerStateError(why) from error
        raise InvalidWorkflowError([Finding(_in_spec(path), text) for path, text in mistakes_by_path(error)]) from error


def newer_definition(stored: Any, at: str) -> str:
    """Name the field of a definition that only a newer version knows; empty if there is none.

    Args:
        stored: The definition, as stored in the API server.
        at: Its path.
    """
    try:
        WorkflowSpec.parse(stored)
    except pydantic.ValidationError as error:
        return unknown_field(error, at)
    return ""


def _in_spec(path: str) -> str:
    return f"spec.{path}" if path else "spec"


def check_options(spec: WorkflowRunSpec) -> None:
    """Check the options of a run that the schema cannot check.

    Raises:
        InvalidWorkflowError: An option is not valid.
    """
    findings = [*options(spec), *input_error(spec.input)]
    if findings:
        raise InvalidWorkflowError(findings)


def without_invalid_attributes(spec: WorkflowRunSpec) -> WorkflowRunSpec:
    """The spec of a run that starts only to fail, without invalid search attributes."""
    wrong = unfit(spec.search_attributes)
    kept = {name: value for name, value in spec.search_attributes.items() if name not in wrong}
    return spec.model_copy(update={"search_attributes": kept}) if wrong else spec


def input_error(value: Any, path: str = "spec.input") -> Iterator[Finding]:
    """Why a run cannot have an input; `path` is the path of the input."""
    if nests_deeper(value):
        yield Finding(path, f"nests more than {MAX_DEPTH} levels deep; reduce the nesting")
        return
    try:
        size = len(orjson.dumps(value))
    except orjson.JSONEncodeError as error:
        yield Finding(path, f"cannot be stored as JSON: {error}")
        return
    if size > MAX_INPUT:
        yield Finding(path, f"has {size:,} bytes of JSON; the limit is {MAX_INPUT:,}")
