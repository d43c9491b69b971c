"""From a WorkflowRun to something that can be interpreted: the definition is found, checked, compiled, kept."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import orjson
import pydantic

from perdure.api.common import mistakes
from perdure.api.reasons import ConditionReason
from perdure.api.workflow import WorkflowSpec
from perdure.api.workflowrun import WorkflowIdConflictPolicy, WorkflowRunSpec
from perdure.kube import client as api
from perdure.language.compiler import compile_program
from perdure.language.program import Finding, InvalidWorkflowError, Program

MAX_INPUT = 256 * 1024
"""Bytes of JSON."""
_CACHED_PROGRAMS = 500


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


class Definitions:
    """Finds and compiles definitions; equal ones are compiled once."""

    def __init__(self, client: api.Client) -> None:
        self._client = client
        self._programs: OrderedDict[bytes, Program] = OrderedDict()

    async def find(self, namespace: str, name: str, spec: WorkflowRunSpec) -> Definition:
        """The definition that a run which starts now is pinned to.

        Raises:
            NotReadyError: the Workflow is missing or invalid; it may be mended.
            InvalidWorkflowError: the run itself asks for what cannot be; a run's spec does not change, so it has failed.
        """
        _check_options(spec)
        if spec.inline is not None:
            return Definition(self.compile(spec.inline.dump()), name, None)
        assert spec.workflow is not None
        workflow = spec.workflow.name
        assert workflow is not None
        try:
            found = await self._client.get(api.path(api.PERDURE, namespace, "workflows", workflow))
        except api.NotFoundError:
            message = f"there is no Workflow `{workflow}` in namespace `{namespace}`; the run starts when there is one"
            raise NotReadyError(ConditionReason.WORKFLOW_NOT_FOUND, message) from None
        try:
            return Definition(self.compile(found["spec"]), workflow, found["spec"])
        except InvalidWorkflowError as error:
            message = f"Workflow `{workflow}` cannot be run: {error}; the run starts when it is mended"
            raise NotReadyError(ConditionReason.INVALID_WORKFLOW, message) from error

    def pinned(self, name: str, spec: WorkflowRunSpec, snapshot: dict[str, Any] | None) -> Definition:
        """The definition of a run that has started.

        Raises:
            InvalidWorkflowError: this version of the operator cannot run it any more.
        """
        if snapshot is None:
            if spec.inline is None:
                raise InvalidWorkflowError([Finding("status.definition", "is missing")])
            return Definition(self.compile(spec.inline.dump()), name, None)
        workflow = spec.workflow.name if spec.workflow else None
        return Definition(self.compile(snapshot), workflow or name, snapshot)

    def compile(self, spec: dict[str, Any]) -> Program:
        """Compile a definition, or find it compiled.

        Raises:
            InvalidWorkflowError: it cannot be run.
        """
        try:
            key = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
        except orjson.JSONEncodeError as error:
            message = f"cannot be passed on as JSON: {error}; make its values less deep"
            raise InvalidWorkflowError([Finding("spec", message)]) from error
        program = self._programs.get(key)
        if program is None:
            try:
                program = compile_program(WorkflowSpec.parse(spec))
            except pydantic.ValidationError as error:
                raise InvalidWorkflowError([Finding("spec", sentence) for sentence in mistakes(error)]) from error
            self._programs[key] = program
            if len(self._programs) > _CACHED_PROGRAMS:
                self._programs.popitem(last=False)
        else:
            self._programs.move_to_end(key)
        return program


def _check_options(spec: WorkflowRunSpec) -> None:
    """Refuse what the API knows and this version does not do yet."""
    asked = {
        "workflow.type": spec.workflow is not None and spec.workflow.type is not None,
        "startDelay": bool(spec.start_delay),
        "startPaused": spec.start_paused,
        "retryPolicy": spec.retry_policy is not None,
        "searchAttributes": bool(spec.search_attributes),
        "workflowIdConflictPolicy": spec.workflow_id_conflict_policy is not WorkflowIdConflictPolicy.FAIL,
    }
    message = "is part of the API but not yet done by this version of the operator; see docs/limits.md"
    findings = [Finding(f"spec.{name}", message) for name, given in asked.items() if given]
    try:
        size = len(orjson.dumps(spec.input))
    except orjson.JSONEncodeError as error:
        findings.append(Finding("spec.input", f"cannot be passed on as JSON: {error}; make it less deep"))
        size = 0
    if size > MAX_INPUT:
        findings.append(Finding("spec.input", f"has {size:,} bytes of JSON; it may have {MAX_INPUT:,}"))
    if findings:
        raise InvalidWorkflowError(findings)
