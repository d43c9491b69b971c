"""Environments, activities, and flows: what the decorators make of functions.

An activity is a function that runs in a pod of its own; a flow is an asynchronous function that decides which activities run.
Importing this needs only the standard library, because activities' pods import the module with the flow too.
"""

from __future__ import annotations

import importlib
import inspect
import re
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import Enum
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Protocol, TypeVar, cast, get_type_hints, overload

from perdure.api.times import parse_duration
from perdure.api.values import Codec, ValueTypeError, codec_of
from perdure.flow.workspaces import QUANTITY, Workspace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping

P = ParamSpec("P")
R = TypeVar("R")

Duration = str | timedelta
"""A duration, such as `"90s"`, `"1h30m"`, or a `timedelta`."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A value from a Secret of the namespace, for a variable of activities: `env={"TOKEN": pf.Secret("bank", "token")}`.

    Only the pods of activities get it, not the workers, in which flows decide.
    """

    name: str
    """Name of the Secret."""
    key: str
    """Its key with the value."""
    optional: bool = False
    """Whether pods start without the variable if the Secret or the key does not exist."""


class Calls(Protocol):
    """Runs what a flow calls."""

    async def run_activity(self, activity: Activity[..., Any], arguments: Mapping[str, Any], label: str) -> Any:
        """Run an activity in a pod."""

    async def run_child(self, flow: Flow[..., Any], arguments: Mapping[str, Any]) -> Any:
        """Run a flow as a child."""


CALLS: ContextVar[Calls | None] = ContextVar("perdure.flow", default=None)
"""What runs the calls of the current flow; None outside of flows."""

_LONGEST_TEXT: Final = 40
_LONGEST_LABEL: Final = 60
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_ACTIVITY_NAME = re.compile(r"[A-Za-z][-_A-Za-z0-9]{0,62}")
"""The name of an activity in a Workflow."""
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""The name of an object of Kubernetes."""
_OPTIONS: Final = {
    "startToCloseTimeout": "timeout",
    "scheduleToCloseTimeout": "total_timeout",
    "heartbeatTimeout": "heartbeat",
    "retryPolicy": "retry",
    "workspaces": "workspace",
}
"""Fields of activities in YAML that have no effect on flows, and the options in place of them."""


def duration(value: Duration) -> timedelta:
    """Return a duration.

    Raises:
        ValueError: It is not a duration.
    """
    if isinstance(value, timedelta):
        return value
    text: object = value
    if not isinstance(text, str):
        raise ValueError(f"{text!r} must be a duration such as `90s`, `1h30m` or `30d`, or a timedelta")  # noqa: TRY004
    return parse_duration(text)


def _checked(value: Duration | None, what: str, *, positive: bool = True) -> timedelta | None:
    """Return a duration.

    Raises:
        ValueError: It is not a duration, or not positive; the message begins with what it is for.
    """
    if value is None:
        return None
    try:
        found = duration(value)
    except ValueError:
        raise ValueError(f"{what} must be a duration such as `90s` or `1h30m`, not {value!r}") from None
    if found < timedelta() or (positive and not found):
        raise ValueError(f"{what} must be longer than zero, not {value!r}")
    return found


def _check_count(value: object, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{what} must be a whole number of at least 0, not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How failed attempts are repeated, as Temporal's retry policies: exponential backoff, without end by default."""

    attempts: int = 0
    """Maximum number of attempts, the first included; 0: no maximum."""
    initial: Duration = "1s"
    """Delay before the second attempt."""
    backoff: float = 2.0
    """Factor by which the delay grows."""
    maximum: Duration | None = None
    """Maximum delay; None: 100 times `initial`."""
    not_for: tuple[str | type[BaseException], ...] = ()
    """Failures that are not repeated: types of exceptions, or their names."""

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ValueError: One is not valid.
        """
        _check_count(self.attempts, "`attempts` of `pf.Retry`")
        _checked(self.initial, "`initial` of `pf.Retry`")
        _checked(self.maximum, "`maximum` of `pf.Retry`", positive=False)
        backoff: object = self.backoff
        if isinstance(backoff, bool) or not isinstance(backoff, int | float) or not backoff >= 1:
            raise ValueError(f"`backoff` of `pf.Retry` must be a number of at least 1, not {self.backoff!r}")

    @property
    def non_retryable(self) -> list[str]:
        """The names of the failures that are not repeated."""
        return [each if isinstance(each, str) else each.__name__ for each in self.not_for]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivityOptions:
    """The options of an activity."""

    timeout: timedelta
    """Maximum duration of an attempt (Temporal's StartToClose)."""
    total_timeout: timedelta | None = None
    """Maximum duration of all attempts with the delays between them (ScheduleToClose)."""
    heartbeat: timedelta | None = None
    """Maximum time between two heartbeats."""
    retry: Retry | str = field(default_factory=Retry)
    """How failed attempts are repeated, or the name of the RetryPolicy that says so."""
    limits: tuple[str, ...] = ()
    """Names of WorkflowLimits that each attempt takes."""
    cache: timedelta | None = None
    """How long a result is reused for the same arguments."""
    workspaces: tuple[Workspace, ...] = ()
    """The workspaces that it mounts."""
    definition: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the activity in its Workflow, such as `podReplacementPolicy`."""


def text_of(value: Any) -> str | None:
    """Return a value as it is shown in names of steps; None if it is too long or of another type."""
    if isinstance(value, Enum):
        value = value.value
    if not isinstance(value, str | int | float | bool | date):
        return None
    text = str(value)
    return text if text and len(text) <= _LONGEST_TEXT and not set(text) & set("/[]") and text.isprintable() else None


class Signature:
    """The parameters and the result of a function, and their encoding as JSON."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        """Read the parameters.

        Raises:
            TypeError: The function has parameters that cannot be passed by name.
        """
        self._function = function
        self._name = name
        self._parameters = inspect.signature(function)
        for each in self._parameters.parameters.values():
            if each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY):
                raise TypeError(f"parameter `{each.name}` of {name} must be one that can be passed by name")

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self._function, include_extras=True)

    @cached_property
    def _codecs(self) -> dict[str, Codec]:
        return {name: codec_of(self._hints.get(name, Any)) for name in self._parameters.parameters}

    @cached_property
    def _result_codec(self) -> Codec:
        return codec_of(self._hints.get("return", Any))

    @property
    def names(self) -> list[str]:
        """The names of the parameters."""
        return list(self._parameters.parameters)

    def label(self, arguments: Mapping[str, Any]) -> str:
        """Return what tells a call from others: its short arguments, without those that have their default: `lr=0.1,epochs=2`."""
        parts: list[str] = []
        for name, value in arguments.items():
            text = None if value == self._parameters.parameters[name].default else text_of(value)
            if text is not None and len(",".join([*parts, f"{name}={text}"])) <= _LONGEST_LABEL:
                parts.append(f"{name}={text}")
        return ",".join(parts)

    def mistakes(self) -> list[str]:
        """Mistakes in the signature: parameters without a type, and types that cannot become JSON."""
        try:
            hints = self._hints
        except Exception as error:  # noqa: BLE001 - an annotation is any code
            return [f"the types of {self._name} cannot be read: {type(error).__name__}: {error}"]
        found = [
            f"parameter `{name}` of {self._name} has no type: write `{name}: str`, or the type that it has"
            for name in self.names
            if name not in hints
        ]
        for name, hint in hints.items():
            try:
                codec_of(hint)
            except TypeError as error:
                what = f"the result of {self._name}" if name == "return" else f"parameter `{name}` of {self._name}"
                found.append(f"{what}: {error}")
        return found

    @property
    def reads_files(self) -> bool:
        """Whether arguments can have files of an artifact store."""
        return any(codec.has_files for codec in self._codecs.values())

    @property
    def returns_files(self) -> bool:
        """Whether the result can have files of an artifact store."""
        return self._result_codec.has_files

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, those with default values included.

        Raises:
            TypeError: They do not fit the parameters.
        """
        try:
            bound = self._parameters.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self._name}: {error}") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def encode_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments as JSON.

        Raises:
            ValueTypeError: One does not fit its declared type.
        """
        return {name: self._codecs[name].encode(value, self._argument(name)) for name, value in arguments.items()}

    def decode_arguments(self, stored: Any) -> dict[str, Any]:
        """Return arguments from JSON: an object of the arguments by name; null for a function without arguments.

        Raises:
            ValueTypeError: They do not fit the parameters.
        """
        if stored is None:
            stored = {}
        if not isinstance(stored, dict):
            raise ValueTypeError(
                f"the input of {self._name} must be an object with its arguments: {', '.join(self.names)}"
            )
        try:
            bound = self._parameters.bind(**stored)
        except TypeError as error:
            raise ValueTypeError(f"the input of {self._name}: {error}") from None
        decoded = {
            name: self._codecs[name].decode(value, self._argument(name)) for name, value in bound.arguments.items()
        }
        return self.bind((), decoded)

    def encode_result(self, value: Any) -> Any:
        """Return a result as JSON.

        Raises:
            ValueTypeError: It does not fit the declared type.
        """
        return self._result_codec.encode(value, f"the result of {self._name}")

    def decode_result(self, stored: Any) -> Any:
        """Return a result from JSON.

        Raises:
            ValueTypeError: It does not fit the declared type.
        """
        return self._result_codec.decode(stored, f"the result of {self._name}")

    def _argument(self, name: str) -> str:
        return f"argument `{name}` of {self._name}"


class Activity(Generic[P, R]):
    """An activity: a function that runs in a pod.

    Calling it in a flow runs it in a pod; elsewhere, awaiting the call runs the function here, as a test of the function would.
    `function` is the function itself.
    """

    def __init__(
        self, environment: Environment, name: str, function: Callable[..., Any], options: ActivityOptions
    ) -> None:
        """Made by `Environment.activity`."""
        self.environment = environment
        self.name = name
        self.function = function
        self.options = options
        self.signature = Signature(function, name)
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Run the activity, with arguments as those of the function.

        Raises:
            ValueTypeError: An argument does not fit its declared type.
            temporalio.exceptions.ActivityError: It has failed, after all attempts; its cause says why.
        """
        arguments = self.signature.bind(args, kwargs)
        return self.called(arguments, self.signature.label(arguments))

    def called(self, arguments: Mapping[str, Any], label: str = "") -> Coroutine[Any, Any, R]:
        """Run the activity.

        Args:
            arguments: Its arguments, by name.
            label: Distinguishes it from other calls in names of steps, such as `lr=0.1`.
        """
        calls = CALLS.get()
        if calls is None:
            return self._run_here(arguments)
        return calls.run_activity(self, arguments, label)

    async def _run_here(self, arguments: Mapping[str, Any]) -> Any:
        result = self.function(**arguments)
        return await result if inspect.isawaitable(result) else result

    def run(self, stored: Any) -> Any:
        """Run the function with arguments from JSON, and return the result as JSON, or an awaitable for it.

        Raises:
            ValueTypeError: The arguments or the result do not fit the declared types.
        """
        result = self.function(**self.signature.decode_arguments(stored))
        if inspect.isawaitable(result):
            return self._encode_later(result)
        return self.signature.encode_result(result)

    def replaced(self, function: Callable[..., Any]) -> Activity[P, R]:
        """Return an activity of the same name, types, and options with another function."""
        found: Activity[P, R] = Activity(self.environment, self.name, self.function, self.options)
        found.function = function
        return found

    async def _encode_later(self, result: Awaitable[Any]) -> Any:
        return self.signature.encode_result(await result)


class ActivityDecorator(Protocol):
    """Makes a function an activity, also an asynchronous one."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Activity[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Activity[P, R]: ...


class Flow(Generic[P, R]):
    """A flow: an asynchronous function that decides, and is replayed after a crash.

    Calling it in another flow starts a child workflow. `run_local` runs it in this process.
    """

    def __init__(self, environment: Environment, name: str, function: Callable[..., Awaitable[Any]]) -> None:
        """Made by `Environment.flow`."""
        if not inspect.iscoroutinefunction(function):
            raise TypeError(f"a flow is an asynchronous function: write `async def {function.__name__}`")
        self.environment = environment
        self.name = name
        self.function = function
        self.signature = Signature(function, name)
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Run the flow as a child of the current one.

        Raises:
            RuntimeError: The caller is not a flow.
            temporalio.exceptions.ChildWorkflowError: The child has failed.
        """
        calls = CALLS.get()
        if calls is None:
            raise RuntimeError(f"{self.name} is a flow: call its `run_local`, or start it on a cluster")
        return calls.run_child(self, self.signature.bind(args, kwargs))

    def run_local(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the flow and its activities in this process, in virtual time: without a cluster, a server, or a wait.

        Raises:
            BaseException: The flow has failed.
        """
        result: R = _imported("local").LocalRun().run(self, *args, **kwargs)
        return result

    @cached_property
    def workflow(self) -> type:
        """The flow as a class for a worker of the Temporal SDK."""
        found: type = _imported("workflow").workflow_class(self)
        return found


def _imported(name: str) -> Any:
    """Import a module of this package that needs the Temporal SDK, which the pods of activities do without."""
    return importlib.import_module(f"perdure.flow.{name}")


@dataclass(frozen=True, slots=True)
class Resources:
    """What a container may use."""

    cpu: str | None = None
    memory: str | None = None
    gpu: int | None = None


class Environment:
    """What the activities of some flows share: the image, resources, and the task queue.

    etl = pf.Environment("etl", image="registry.example.com/etl:1.4", cpu="500m", memory="256Mi")
    """

    def __init__(
        self,
        name: str,
        *,
        image: str | None = None,
        cpu: str | None = None,
        memory: str | None = None,
        gpu: int | None = None,
        env: Mapping[str, str | Secret] | None = None,
        service_account: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Create an environment.

        Args:
            name: Name of the task queue, of the Workflow with the activities, and of the worker: a DNS label.
            image: Image with the module of the flow and `perdure`; None: chosen by `perdure deploy --image`.
            cpu: CPU of each activity's pod, in Kubernetes' notation, such as `500m`.
            memory: Memory of each activity's pod, such as `256Mi`: requested, and its limit.
            gpu: Number of NVIDIA GPUs of each activity's pod.
            env: Environment variables of activities and workers; those with a Secret only of activities.
            service_account: ServiceAccount of activities' pods.
            labels: Labels of activities' pods, such as those that a NetworkPolicy selects.

        Raises:
            ValueError: The name is not a DNS label, or an amount of resources is not valid.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"the name of an environment must be a DNS label such as `etl`, not {name!r}")
        amounts: tuple[tuple[str, object, str], ...] = (
            ("cpu", cpu, "`500m` or `2`"),
            ("memory", memory, "`256Mi` or `4Gi`"),
        )
        for field_name, quantity, example in amounts:
            if quantity is not None and not (isinstance(quantity, str) and QUANTITY.fullmatch(quantity)):
                what = f"`{field_name}` of the environment `{name}`"
                raise ValueError(f"{what} must be a quantity of Kubernetes such as {example}, not {quantity!r}")
        if gpu is not None:
            _check_count(gpu, f"`gpu` of the environment `{name}`")
        self.name = name
        self.image = image
        self.resources = Resources(cpu, memory, gpu)
        self.env = dict(env or {})
        self.service_account = service_account
        self.labels = dict(labels or {})
        self.activities: dict[str, Activity[..., Any]] = {}
        self.flows: dict[str, Flow[..., Any]] = {}
        _ENVIRONMENTS[name] = self

    def activity(
        self,
        *,
        timeout: Duration = "10m",
        total_timeout: Duration | None = None,
        heartbeat: Duration | None = None,
        retries: int | None = None,
        retry: Retry | str | None = None,
        limit: str | tuple[str, ...] = (),
        cache: Duration | None = None,
        workspace: Workspace | tuple[Workspace, ...] = (),
        definition: Mapping[str, Any] | None = None,
    ) -> ActivityDecorator:
        """Return a decorator that makes a function an activity. Its name is that of the function, with dashes.

        Args:
            timeout: Maximum duration of an attempt.
            total_timeout: Maximum duration of all attempts.
            heartbeat: Maximum time between two calls of `perdure.activity.heartbeat`.
            retries: How often a failed attempt is repeated; None: without end, with a growing delay.
            retry: The same in full, or the name of a RetryPolicy in the namespace of the run.
            limit: WorkflowLimits that each attempt takes.
            cache: How long a result is reused for the same arguments.
            workspace: Workspaces whose files it has at their `path`.
            definition: Further fields of the activity in its Workflow, as in YAML.

        Raises:
            ValueError: An option is not valid, or the environment has an activity with that name.
        """
        if retry is not None and retries is not None:
            raise ValueError("give `retries` or `retry`, not both")
        if isinstance(retry, str) and not _OBJECT_NAME.fullmatch(retry):
            raise ValueError(
                f"`retry` must be a `pf.Retry`, or the name of a RetryPolicy such as `standard`, not {retry!r}"
            )
        for name, option in _OPTIONS.items():
            if name in (definition or {}):
                raise ValueError(f"`{name}` in `definition` has no effect on flows: use `{option}`")
        if "podTemplate" in (definition or {}):
            raise ValueError(
                "`podTemplate` in `definition` would replace the container of the function: use `podSpecPatch`"
            )

        def decorate(function: Callable[..., Any]) -> Activity[..., Any]:
            name = function.__name__.strip("_").replace("_", "-")
            if not _ACTIVITY_NAME.fullmatch(name):
                rule = "at most 63 letters, digits, `-`, and `_`, and begins with a letter"
                raise ValueError(f"the name of an activity has {rule}, not {name!r}: rename its function")
            if name in self.activities:
                raise ValueError(f"the environment {self.name} has two activities named {name}")
            of = f"of the activity `{name}`"
            if retries is not None:
                _check_count(retries, f"`retries` {of}")
            options = ActivityOptions(
                timeout=_checked(timeout, f"`timeout` {of}") or timedelta(minutes=10),
                total_timeout=_checked(total_timeout, f"`total_timeout` {of}"),
                heartbeat=_checked(heartbeat, f"`heartbeat` {of}"),
                retry=retry or (Retry() if retries is None else Retry(attempts=retries + 1)),
                limits=(limit,) if isinstance(limit, str) else tuple(limit),
                cache=_checked(cache, f"`cache` {of}"),
                workspaces=(workspace,) if isinstance(workspace, Workspace) else tuple(workspace),
                definition=dict(definition or {}),
            )
            found: Activity[..., Any] = Activity(self, name, function, options)
            self.activities[name] = found
            return found

        return cast("ActivityDecorator", decorate)

    @overload
    def flow(self, function: Callable[P, Awaitable[R]], /) -> Flow[P, R]: ...
    @overload
    def flow(self, /, *, name: str | None = None) -> Callable[[Callable[P, Awaitable[R]]], Flow[P, R]]: ...
    def flow(self, function: Any = None, /, *, name: str | None = None) -> Any:
        """Make an asynchronous function a flow. Its name, Temporal's workflow type, is that of the function.

        Raises:
            TypeError: The function is not asynchronous.
            ValueError: The environment has a flow with that name.
        """

        def decorate(function: Callable[..., Awaitable[Any]]) -> Flow[Any, Any]:
            found: Flow[Any, Any] = Flow(self, name or function.__name__, function)
            if found.name in self.flows:
                raise ValueError(f"the environment {self.name} has two flows named {found.name}")
            self.flows[found.name] = found
            for each in LISTENERS:
                each(found)
            return found

        return decorate if function is None else decorate(function)


LISTENERS: list[Callable[[Flow[..., Any]], object]] = []
"""Called with each flow that is defined. A worker needs that: its sandbox imports the module of a flow again, for each run."""

_ENVIRONMENTS: dict[str, Environment] = {}


@contextmanager
def environments_kept() -> Iterator[None]:
    """Forget the environments that a block defines, such as those of a module that a sandbox imports again."""
    before = dict(_ENVIRONMENTS)
    try:
        yield
    finally:
        _ENVIRONMENTS.clear()
        _ENVIRONMENTS.update(before)


def environment_named(name: str) -> Environment | None:
    """Return the environment that was defined last with that name."""
    return _ENVIRONMENTS.get(name)


def environments_of(module: Any) -> list[Environment]:
    """Return the environments of a module, in the order of their names."""
    found = {id(each): each for each in vars(module).values() if isinstance(each, Environment)}
    return sorted(found.values(), key=lambda each: each.name)
