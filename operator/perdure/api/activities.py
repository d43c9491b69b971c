"""Builders of activities: containers, scripts, and other work, with durations as texts and environment variables as a map.

from perdure.api import activities

activities.container("charge", "registry.example.com/bank:1", command=["charge"], start_to_close_timeout="1m")
activities.script("greet", "python:3.13", "print('hello')", command=["python"], start_to_close_timeout="10s")
activities.of("notify", api.Http(method="POST", url="https://chat.example.com"), start_to_close_timeout="1m")
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypedDict

from perdure.api.kinds.retrypolicy import RetryPolicyChoice
from perdure.api.kinds.workflow import (
    Activity,
    Container,
    Http,
    KubernetesResource,
    PodTemplate,
    Script,
    ScriptResult,
    Worker,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Unpack

    from perdure.api.kinds.artifact import Artifacts
    from perdure.api.kinds.workflow import FailureType, PodRetention, ResultCache, ResultSize, Service, Sidecar
    from perdure.api.kinds.workflowlimit import ActivityLimit
    from perdure.api.kinds.workspace import WorkspaceMount

Duration = timedelta | str
"""A duration, such as `timedelta(hours=1)` or `"1h"`."""

_FIELDS = {
    Container: "container",
    Http: "http",
    KubernetesResource: "resource",
    PodTemplate: "pod_template",
    Script: "script",
    Worker: "worker",
}


class Options(TypedDict, total=False):
    """What every activity can have, as the fields of `Activity` of these names. One of the first two is necessary."""

    start_to_close_timeout: Duration
    schedule_to_close_timeout: Duration
    schedule_to_start_timeout: Duration
    heartbeat_timeout: Duration
    retry_policy: RetryPolicyChoice | str
    """A policy, or the name of a RetryPolicy."""
    limits: Sequence[ActivityLimit]
    cache: ResultCache
    result_size: ResultSize
    services: Sequence[Service]
    workspaces: Sequence[WorkspaceMount]
    artifacts: Artifacts
    sidecar: Sidecar
    pod_retention: PodRetention
    pod_spec_patch: Mapping[str, Any]
    failure_types: Sequence[FailureType]


def of(
    name: str, work: Container | Script | Http | KubernetesResource | PodTemplate | Worker, **options: Unpack[Options]
) -> Activity:
    """Return an activity.

    Args:
        name: Its name.
        work: What runs it.
        options: What every activity can have.
    """
    found: dict[str, Any] = {"name": name, _FIELDS[type(work)]: work, **options}
    policy = found.get("retry_policy")
    if isinstance(policy, str):
        found["retry_policy"] = RetryPolicyChoice(name=policy)
    return Activity.model_validate(
        {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}, by_name=True
    )


def container(
    name: str,
    image: str,
    *,
    command: Sequence[str] | None = None,
    args: Sequence[str] | None = None,
    env: Mapping[str, str | Mapping[str, Any]] | None = None,
    cpu: str | None = None,
    memory: str | None = None,
    fields: Mapping[str, Any] | None = None,
    **options: Unpack[Options],
) -> Activity:
    """Return an activity that a container runs.

    Args:
        name: Its name.
        image: The image.
        command: What runs in place of the image's entry point.
        args: Arguments; texts with expressions.
        env: Environment variables: a text with expressions, or a source such as `secret_key("db", "password")`.
        cpu: The CPU that it requests, such as `500m`.
        memory: The memory that it requests and may use, such as `256Mi`.
        fields: Further fields of a Kubernetes container, by their names in manifests, such as `volumeMounts`.
        options: What every activity can have.
    """
    work = Container.model_validate({"image": image, **_container(command, args, env, cpu, memory), **(fields or {})})
    return of(name, work, **options)


def script(
    name: str,
    image: str,
    source: str,
    *,
    command: Sequence[str] | None = None,
    args: Sequence[str] | None = None,
    env: Mapping[str, str | Mapping[str, Any]] | None = None,
    cpu: str | None = None,
    memory: str | None = None,
    result: ScriptResult | None = None,
    fields: Mapping[str, Any] | None = None,
    **options: Unpack[Options],
) -> Activity:
    """Return an activity that is a script.

    Args:
        name: Its name.
        image: Image with the interpreter.
        source: The script.
        command: The interpreter; None: `sh`.
        args: Arguments; texts with expressions.
        env: Environment variables, as of a container.
        cpu: The CPU that it requests, such as `500m`.
        memory: The memory that it requests and may use, such as `256Mi`.
        result: Where the result comes from; None: the file that `$PERDURE_TERMINATION_LOG` names.
        fields: Further fields of a Kubernetes container, by their names in manifests.
        options: What every activity can have.
    """
    found = {"image": image, "source": source, **_container(command, args, env, cpu, memory), **(fields or {})}
    return of(name, Script.model_validate(found if result is None else {**found, "result": result}), **options)


def secret_key(name: str, key: str) -> dict[str, Any]:
    """Return the source of an environment variable that is a key of a Secret."""
    return {"secretKeyRef": {"name": name, "key": key}}


def config_map_key(name: str, key: str) -> dict[str, Any]:
    """Return the source of an environment variable that is a key of a ConfigMap."""
    return {"configMapKeyRef": {"name": name, "key": key}}


def _container(
    command: Sequence[str] | None,
    args: Sequence[str] | None,
    env: Mapping[str, str | Mapping[str, Any]] | None,
    cpu: str | None,
    memory: str | None,
) -> dict[str, Any]:
    """Return fields of a Kubernetes container."""
    found: dict[str, Any] = {}
    if command is not None:
        found["command"] = list(command)
    if args is not None:
        found["args"] = list(args)
    if env:
        found["env"] = [
            {"name": name, "value": value} if isinstance(value, str) else {"name": name, "valueFrom": dict(value)}
            for name, value in env.items()
        ]
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value is not None}
    if requests:
        found["resources"] = {"requests": requests, **({"limits": {"memory": memory}} if memory is not None else {})}
    return found
