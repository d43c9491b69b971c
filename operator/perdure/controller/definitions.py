"""From a WorkflowRun to something that can be interpreted: the definition is found, checked, compiled, kept."""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import orjson
import pydantic

from perdure.api.common import mistakes
from perdure.api.reasons import ConditionReason
from perdure.api.workflow import Activity, WorkflowSpec
from perdure.api.workflowrun import WorkflowRunSpec
from perdure.engine.failures import Failure, FailureKind
from perdure.kube import client as api
from perdure.language.checks import check
from perdure.language.program import Finding, InvalidWorkflowError, Program, Severity
from perdure.runtime.searching import unfit

MAX_INPUT = 256 * 1024
"""Bytes of JSON."""
_CACHED_BYTES = 8 * 1024 * 1024
"""Of definitions, as JSON; what is compiled from them takes a multiple of that."""


class NotReadyError(Exception):
    """The run cannot start until someone mends something; it is tried again when the Workflow changes."""

    def __init__(self, reason: ConditionReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class Definition:
    """What a run runs."""

    program: Program
    workflow_type: str
    """Name of the Workflow; of the run itself where the definition is written in place."""
    snapshot: dict[str, Any] | None
    """The definition as JSON where it came from a Workflow: kept with the run, so that later edits do not reach it."""


@dataclass(frozen=True, slots=True)
class _Compiled:
    """What is known of a definition."""

    program: Program | None
    """None where it cannot be interpreted at all."""
    broken: tuple[Finding, ...]
    """Why that is so."""
    findings: tuple[Finding, ...]
    """Everything that was found, warnings included."""


class Definitions:
    """Finds and compiles definitions; equal ones are compiled once, and so are those that cannot be run."""

    def __init__(self, client: api.Client) -> None:
        self._client = client
        self._compiled: OrderedDict[bytes, _Compiled] = OrderedDict()
        self._cached = 0
        self._compiling = asyncio.Lock()

    async def find(self, namespace: str, name: str, spec: WorkflowRunSpec) -> Definition:
        """The definition that a run which starts now is pinned to.

        Raises:
            NotReadyError: the Workflow is missing or invalid; it may be mended.
            InvalidWorkflowError: the run itself asks for what cannot be; a run's spec does not change, so it has failed.
        """
        if spec.inline is not None:
            try:
                return Definition(await self.compile(spec.inline.dump()), name, None)
            except InvalidWorkflowError as error:
                raise InvalidWorkflowError([found.moved("spec.inline") for found in error.findings]) from error
        assert spec.workflow is not None
        workflow = spec.workflow.name
        assert workflow is not None
        try:
            found = await self._client.get(api.path(api.PERDURE, namespace, "workflows", workflow))
        except api.NotFoundError:
            message = f"there is no Workflow `{workflow}` in namespace `{namespace}`; the run starts when there is one"
            raise NotReadyError(ConditionReason.WORKFLOW_NOT_FOUND, message) from None
        try:
            return Definition(await self.compile(found["spec"]), workflow, found["spec"])
        except InvalidWorkflowError as error:
            message = f"Workflow `{workflow}` cannot be run: {error}; the run starts when it is mended"
            raise NotReadyError(ConditionReason.INVALID_WORKFLOW, message) from error

    async def activity(self, namespace: str, workflow: str, name: str) -> Activity | Failure:
        """An activity of a Workflow, for code that has it done by pods; or why there is none.

        Raises:
            ApiError, OSError, aiohttp.ClientError, TimeoutError: the API server could not be asked.
        """
        try:
            found = await self._client.get(api.path(api.PERDURE, namespace, "workflows", workflow))
            program = await self.compile(found["spec"])
        except (api.NotFoundError, ValueError):
            return _no_activity(f"there is no Workflow `{workflow}` in namespace `{namespace}`")
        except InvalidWorkflowError as error:
            return _no_activity(f"Workflow `{workflow}` cannot be run: {error}")
        definition = program.activities.get(name)
        if definition is None or definition.worker is not None:
            return _no_activity(f"Workflow `{workflow}` has no activity `{name}` that is done by a pod")
        return definition

    async def pinned(self, name: str, spec: WorkflowRunSpec, snapshot: dict[str, Any] | None) -> Definition:
        """The definition of a run that has started.

        Raises:
            InvalidWorkflowError: this version of the operator cannot run it any more.
        """
        if snapshot is None:
            if spec.inline is None:
                raise InvalidWorkflowError([Finding("status.definition", "is missing")])
            return Definition(await self.compile(spec.inline.dump(), pinned=True), name, None)
        workflow = spec.workflow.name if spec.workflow else None
        return Definition(await self.compile(snapshot, pinned=True), workflow or name, snapshot)

    async def compile(self, spec: dict[str, Any], *, pinned: bool = False) -> Program:
        """Compile a definition, or find it compiled.

        Args:
            spec: The definition.
            pinned: For a run that has started already: that it will fail is no reason to stop it.

        Raises:
            InvalidWorkflowError: it cannot be run.
        """
        compiled = await self._look(spec)
        errors = [finding for finding in compiled.findings if finding.severity is Severity.ERROR]
        if errors and not pinned:
            raise InvalidWorkflowError(errors)
        if compiled.program is None:
            raise InvalidWorkflowError(list(compiled.broken))
        return compiled.program

    async def findings(self, spec: dict[str, Any]) -> tuple[Finding, ...]:
        """Everything that static checks find in a definition, the errors first."""
        try:
            return (await self._look(spec)).findings
        except InvalidWorkflowError as error:
            return tuple(error.findings)

    async def _look(self, spec: dict[str, Any]) -> _Compiled:
        """Compile and check a definition, or find it done.

        A large one takes seconds. It is compiled in a thread, so that everything else goes on meanwhile, and one at a time, so
        that the threads do not take the interpreter away from it.

        Raises:
            InvalidWorkflowError: it is no JSON that could be kept.
        """
        try:
            key = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
        except orjson.JSONEncodeError as error:
            message = f"cannot be passed on as JSON: {error}; make its values less deep"
            raise InvalidWorkflowError([Finding("spec", message)]) from error
        if key not in self._compiled:
            async with self._compiling:
                if key not in self._compiled:
                    self._keep(key, await asyncio.to_thread(_compile, spec))
        self._compiled.move_to_end(key)
        return self._compiled[key]

    def _keep(self, key: bytes, compiled: _Compiled) -> None:
        self._compiled[key] = compiled
        self._cached += len(key)
        while self._cached > _CACHED_BYTES and len(self._compiled) > 1:
            oldest, _ = self._compiled.popitem(last=False)
            self._cached -= len(oldest)


def _no_activity(message: str) -> Failure:
    return Failure(kind=FailureKind.APPLICATION, type="InvalidActivity", message=message, non_retryable=True)


def _compile(given: dict[str, Any]) -> _Compiled:
    """The program, and everything that was found."""
    try:
        spec = WorkflowSpec.parse(given)
    except pydantic.ValidationError as error:
        wrong = tuple(Finding("spec", sentence) for sentence in mistakes(error))
        return _Compiled(None, wrong, wrong)
    checked = check(spec)
    return _Compiled(None if checked.broken else checked.program, checked.broken, checked.findings)


def check_options(spec: WorkflowRunSpec) -> None:
    """Refuse what the schema cannot say of a run's own options.

    Raises:
        InvalidWorkflowError: one of them cannot be.
    """
    findings = [Finding(f"spec.searchAttributes.{name}", why) for name, why in unfit(spec.search_attributes).items()]
    try:
        size = len(orjson.dumps(spec.input))
    except orjson.JSONEncodeError as error:
        findings.append(Finding("spec.input", f"cannot be passed on as JSON: {error}; make it less deep"))
        size = 0
    if size > MAX_INPUT:
        findings.append(Finding("spec.input", f"has {size:,} bytes of JSON; it may have {MAX_INPUT:,}"))
    if findings:
        raise InvalidWorkflowError(findings)
