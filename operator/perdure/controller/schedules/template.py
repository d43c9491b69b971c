"""Check whether a run of a Schedule's template could start, for the condition of the Schedule."""

from collections.abc import Mapping
from typing import Any

from perdure.api.kinds.schedule import WorkflowRunTemplate
from perdure.api.reasons import ConditionReason
from perdure.controller.workflows.definitions import Definitions, NotReadyError, input_error
from perdure.language.checks import labels, options, unevaluated
from perdure.language.program import Severity, with_defaults
from perdure.schedule.status import Problem


class TemplateCheck:
    """Checks the template of one Schedule, and repeats this when a dependency has changed."""

    def __init__(self, definitions: Definitions, namespace: str, name: str) -> None:
        """Create it without a result.

        Args:
            definitions: Finds and compiles the definition of the template.
            namespace: Namespace of the Schedule.
            name: Name of the Schedule.
        """
        self._definitions = definitions
        self._namespace = namespace
        self._name = name
        self._checked = False
        self.problem: Problem | None = None
        """Why a run would not start now, according to the last check."""
        self.warning = ""
        """What is probably a mistake, although runs start."""

    def observe(self) -> None:
        """Record that the template or its Workflow has changed."""
        self._checked = False

    async def check(self, template: WorkflowRunTemplate, stored: Mapping[str, Any]) -> bool:
        """Check whether a run could start; return whether the result has changed.

        Due runs start in any case, because the Workflow may be created or fixed by then.

        Args:
            template: The template.
            stored: Its spec, as stored in the API server.

        Raises:
            NotYetError: The Workflow is being compiled.
            RequestError: The Kubernetes API request failed.
        """
        if self._checked:
            return False
        self._checked = True  # before the request: a change during it makes this False again
        try:
            found = await self._find(template, stored)
        except BaseException:
            self._checked = False
            raise
        before = self.problem, self.warning
        self.problem = found
        self.warning = "; ".join(map(str, unevaluated(template.spec, "spec.workflowRunTemplate.spec")))
        return (self.problem, self.warning) != before

    async def _find(self, template: WorkflowRunTemplate, stored: Mapping[str, Any]) -> Problem | None:
        if template.spec.workflow is not None and template.spec.workflow.name is None:
            return None  # code, whose input only its workers can check
        path = "spec.workflowRunTemplate"
        try:
            definition = await self._definitions.find(self._namespace, self._name, template.spec, stored.get("inline"))
        except NotReadyError as error:
            return Problem(error.reason, error.message)
        wrong = definition.program.check_input(with_defaults(definition.program, template.spec.input))
        message = "; ".join(str(each.moved(path)) for each in wrong)
        return Problem(ConditionReason.INVALID_INPUT, message) if wrong else None

    def mistakes(self, template: WorkflowRunTemplate, stored: Mapping[str, Any]) -> list[str]:
        """The errors of the template that prevent every run from starting.

        Args:
            template: The template.
            stored: Its spec, as stored in the API server.

        Raises:
            NotYetError: The definition is being compiled.
        """
        path = "spec.workflowRunTemplate.spec"
        found = [
            *labels(template.metadata, "spec.workflowRunTemplate.metadata"),
            *options(template.spec, path),
            *input_error(template.spec.input, f"{path}.input"),
        ]
        if (inline := stored.get("inline")) is not None:
            checked = self._definitions.findings(self._namespace, inline)
            found += [each.moved(f"{path}.inline") for each in checked if each.severity is Severity.ERROR]
        return list(map(str, found))
