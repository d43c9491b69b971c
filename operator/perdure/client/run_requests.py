"""What a client starts: a flow with its arguments, a Workflow, or a workflow type of code."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar, overload

from perdure.api.labels import API_VERSION
from perdure.lazy import lazily

with lazily():
    from perdure.api import values

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from perdure.client.requests import Object

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class NamedEnvironment(Protocol):
    """The environment of a flow, whose name is that of the task queue."""

    @property
    def name(self) -> str:
        """The name of the task queue."""


class FlowSignature(Protocol):
    """The parameters and the result of a flow, and their encoding as JSON."""

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name."""

    def encode_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as JSON."""

    def decode_result(self, stored: Any) -> Any:
        """Return a result from JSON."""


class FlowType(Protocol[P, R_co]):
    """A flow, as `perdure.flow` makes it of a function."""

    @property
    def name(self) -> str:
        """The workflow type."""

    @property
    def environment(self) -> NamedEnvironment:
        """The environment of the flow."""

    @property
    def signature(self) -> FlowSignature:
        """The parameters and the result."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R_co]:
        """Run the flow as a child."""


@dataclass(frozen=True, slots=True)
class RunRequest(Generic[R]):
    """What to start, with its input and the type of its result."""

    workflow: Mapping[str, Any]
    """`spec.workflow` of the run."""
    input: Any
    """The input, as JSON; None for no input."""
    decode: Callable[[Any], R]
    """Makes the result of the JSON from the run."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the spec of the run."""

    @staticmethod
    def of_flow(flow: FlowType[P, T], /, *args: P.args, **kwargs: P.kwargs) -> RunRequest[T]:
        """Request a flow of `perdure.flow`, with arguments as those of its function.

        Raises:
            TypeError: The arguments do not fit the parameters.
            ValueTypeError: An argument does not fit its declared type.
        """
        signature = flow.signature
        arguments = signature.encode_arguments(signature.bind(args, kwargs))
        kind = {"type": flow.name, "taskQueue": flow.environment.name}
        return RunRequest(kind, arguments, signature.decode_result)

    @overload
    @staticmethod
    def of_workflow(
        name: str, input_: Any = None, *, result_type: type[T], revision: str | None = None, **spec: Any
    ) -> RunRequest[T]: ...
    @overload
    @staticmethod
    def of_workflow(name: str, input_: Any = None, *, revision: str | None = None, **spec: Any) -> RunRequest[Any]: ...
    @staticmethod
    def of_workflow(
        name: str, input_: Any = None, *, result_type: Any = Any, revision: str | None = None, **spec: Any
    ) -> RunRequest[Any]:
        """Request a run of a Workflow.

        Args:
            name: Name of the Workflow; `NAMESPACE/NAME` for one of another namespace.
            input_: The input: JSON, or a dataclass, pydantic model, or msgspec Struct.
            result_type: The type of the result.
            revision: Name of the WorkflowRevision; None for the current definition.
            spec: Further fields of the spec of the run, as in a manifest.

        Raises:
            ValueTypeError: JSON cannot represent the input.
        """
        kind = {"name": name} if revision is None else {"name": name, "revision": revision}
        stored = None if input_ is None else encoded(input_, f"the input of {name}")
        return RunRequest(kind, stored, decoder(result_type, name), spec)

    @overload
    @staticmethod
    def of_type(name: str, task_queue: str, *arguments: Any, result_type: type[T], **spec: Any) -> RunRequest[T]: ...
    @overload
    @staticmethod
    def of_type(name: str, task_queue: str, *arguments: Any, **spec: Any) -> RunRequest[Any]: ...
    @staticmethod
    def of_type(name: str, task_queue: str, *arguments: Any, result_type: Any = Any, **spec: Any) -> RunRequest[Any]:
        """Request a run of a workflow type that workers of any Temporal SDK serve.

        Args:
            name: The workflow type.
            task_queue: The task queue of the workers.
            arguments: The arguments: JSON, dataclasses, pydantic models, or msgspec Structs.
            result_type: The type of the result.
            spec: Further fields of the spec of the run, as in a manifest.

        Raises:
            ValueTypeError: JSON cannot represent an argument.
        """
        values_ = [encoded(each, f"argument {number} of {name}") for number, each in enumerate(arguments, 1)]
        several = {"payloads": [{"json": each} for each in values_]}
        stored = several if len(values_) > 1 else values_[0] if values_ else None
        return RunRequest({"type": name, "taskQueue": task_queue}, stored, decoder(result_type, name), spec)

    @property
    def run_spec(self) -> Object:
        """The spec of the run."""
        inputs = {} if self.input is None else {"input": self.input}
        return {"workflow": dict(self.workflow), **inputs, **self.spec}

    def manifest(
        self, *, name: str | None = None, labels: Mapping[str, str] | None = None, spec: Object | None = None
    ) -> Object:
        """Return the WorkflowRun.

        Args:
            name: Its name; None: the API server generates one from the name of the workflow.
            labels: Its labels.
            spec: Further fields of the spec.
        """
        kind = str(self.workflow.get("type") or str(self.workflow.get("name")).rpartition("/")[2])
        called = {"generateName": f"{name_prefix(kind)}-"} if name is None else {"name": name}
        return {
            "apiVersion": API_VERSION,
            "kind": "WorkflowRun",
            "metadata": {**called, **({"labels": dict(labels)} if labels else {})},
            "spec": {**self.run_spec, **(spec or {})},
        }


def name_prefix(kind: str) -> str:
    """Convert a workflow type to a part of the name of a run: `order-workflow` for `OrderWorkflow`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", kind).lower()
    return re.sub(r"[^a-z0-9]+", "-", words)[:40].strip("-") or "run"


def encoded(value: Any, subject: str) -> Any:
    """Return a value as JSON: JSON itself, or a dataclass, pydantic model, or msgspec Struct.

    Raises:
        ValueTypeError: JSON cannot represent it.
    """
    return values.codec_of(type(value) if _has_fields(value) else Any).encode(value, subject)


def _has_fields(value: Any) -> bool:
    """Whether a value is of a class with declared fields, which decide its encoding."""
    kind = type(value)
    return any(hasattr(kind, name) for name in ("__dataclass_fields__", "__pydantic_fields__", "__struct_fields__"))


def decoder(hint: Any, name: str) -> Callable[[Any], Any]:
    """Return what makes results of a declared type from JSON.

    Args:
        hint: The type; Any for JSON as it is.
        name: What has the result, for messages.
    """
    return lambda stored: stored if hint is Any else values.codec_of(hint).decode(stored, f"the result of {name}")
