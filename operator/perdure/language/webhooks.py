"""A Webhook with its expressions compiled: decides which object a request creates. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from perdure.api import labels
from perdure.api.kinds.webhook import WebhookSpec
from perdure.api.names import MAX_WORKFLOW_ID, delivery_name, label_value
from perdure.language.checks import in_data
from perdure.language.checks.shapes import ANY, TEXT, Shape
from perdure.language.checks.templates import CONDITION, guards_of, of_template
from perdure.language.coercion import as_text
from perdure.language.expressions import ExpressionError, Template, compile_condition, compile_template
from perdure.language.program import Finding

_SCOPE: Final[Mapping[str, Shape]] = {"body": ANY, "headers": {"type": "object", "additionalProperties": TEXT}}
_NAMES: Final = frozenset(_SCOPE)
MAX_DELIVERY_ID: Final = 1_000
"""Maximum length of the ID of a request."""


class UnusableRequestError(Exception):
    """A request with a valid signature that the Webhook cannot process; the message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRequest:
    """A request with a valid signature."""

    headers: Mapping[str, str]
    """The headers by name in lower case."""
    body: Any
    """The JSON value of the body."""
    id: str
    """The ID of the request, unless the Webhook has an expression for it."""


@dataclass(frozen=True, slots=True)
class Created:
    """The object that a request creates."""

    plural: str
    object: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookProgram:
    """The spec of a Webhook, and its templates."""

    spec: WebhookSpec
    when: Template | None
    delivery_id: Template | None
    workflow_id: Template | None
    start_input: Template | None
    signal_name: Template | None
    signal_input: Template | None

    @classmethod
    def compile(cls, spec: WebhookSpec) -> Self:
        """Compile the expressions of a spec.

        Raises:
            ExpressionError: An expression is not valid.
        """

        def template(value: Any, path: str) -> Template | None:
            return None if value is None else compile_template(value, path=f"spec.{path}", names=_NAMES)

        start, signal = spec.start, spec.signal
        return cls(
            spec=spec,
            when=compile_condition(spec.when, path="spec.when", names=_NAMES) if spec.when else None,
            delivery_id=template(spec.delivery_id, "deliveryId"),
            workflow_id=template(spec.workflow_id, "workflowId"),
            start_input=template(start.input, "start.input") if start else None,
            signal_name=template(signal.name, "signal.name") if signal else None,
            signal_input=template(signal.input, "signal.input") if signal else None,
        )

    def findings(self) -> Iterator[Finding]:
        """Check the types of the expressions, and find expressions that are not evaluated."""
        templates = {
            "when": self.when,
            "deliveryId": self.delivery_id,
            "workflowId": self.workflow_id,
            "start.input": self.start_input,
            "signal.name": self.signal_name,
            "signal.input": self.signal_input,
        }
        guards = guards_of(each for each in templates.values() if each is not None)
        for path, template in templates.items():
            if template is not None:
                expected = CONDITION if path == "when" else None
                yield from of_template(f"spec.{path}", template, _SCOPE, guards, expected)
        if self.spec.start is not None:
            message = "a Webhook starts one Workflow; write its name, or its type and task queue"
            yield from in_data("spec.start.workflow", self.spec.start.workflow.dump(), message, names=_NAMES)

    def created(self, metadata: Mapping[str, Any], request: WebhookRequest) -> Created | None:
        """Return the object that a request creates; None if `when` is false.

        Args:
            metadata: The metadata of the Webhook.
            request: The request.

        Raises:
            UnusableRequestError: An expression has no value for this request.
        """
        secrets = {self.spec.signature.header.lower(), "authorization", "cookie"}
        headers = {name: value for name, value in request.headers.items() if name not in secrets}
        scope = {"body": request.body, "headers": headers}
        try:
            if self.when is not None and not self.when.evaluate(scope):
                return None
            return self._created(metadata, request.id, scope)
        except ExpressionError as error:
            raise UnusableRequestError(str(error)) from None

    def _created(self, metadata: Mapping[str, Any], delivery_id: str, scope: Mapping[str, Any]) -> Created:
        if self.delivery_id is not None:
            delivery_id = self._text(self.delivery_id, scope, "deliveryId", MAX_DELIVERY_ID)
        workflow_id = self._text(self.workflow_id, scope, "workflowId", MAX_WORKFLOW_ID) if self.workflow_id else None
        start = self._start(scope)
        if self.signal_name is None:
            spec = {**(start or {}), **({} if workflow_id is None else {"workflowId": workflow_id})}
            return self._object("WorkflowRun", metadata, delivery_id, spec)
        signal = {"name": self._text(self.signal_name, scope, "signal.name", MAX_WORKFLOW_ID)}
        if self.signal_input is not None:
            signal["input"] = self.signal_input.evaluate(scope)
        request = {"signal": signal} if start is None else {"signalWithStart": {**signal, "start": start}}
        target = {"kind": "WorkflowRun", "workflowId": workflow_id}
        return self._object("Operation", metadata, delivery_id, {"target": target, **request})

    def _start(self, scope: Mapping[str, Any]) -> dict[str, Any] | None:
        if self.spec.start is None:
            return None
        started = {"workflow": self.spec.start.workflow.dump()}
        if self.start_input is not None:
            started["input"] = self.start_input.evaluate(scope)
        return started

    @staticmethod
    def _text(template: Template, scope: Mapping[str, Any], field: str, longest: int) -> str:
        text = as_text(template.evaluate(scope))
        if not 0 < len(text) <= longest:
            raise UnusableRequestError(f"spec.{field}: must have 1 to {longest:,} characters; it has {len(text):,}")
        return text

    @staticmethod
    def _object(kind: str, metadata: Mapping[str, Any], delivery_id: str, spec: dict[str, Any]) -> Created:
        made = {
            "apiVersion": labels.API_VERSION,
            "kind": kind,
            "metadata": {
                "name": delivery_name(metadata["name"], metadata["uid"], delivery_id),
                "namespace": metadata["namespace"],
                "labels": {labels.WEBHOOK_LABEL: label_value(metadata["name"])},
                "annotations": {
                    labels.DELIVERY_ANNOTATION: delivery_id,
                    labels.CREATED_BY_ANNOTATION: f"webhook:{metadata['namespace']}/{metadata['name']}",
                },
            },
            "spec": spec,
        }
        return Created(f"{kind.lower()}s", made)
