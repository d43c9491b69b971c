"""The types of everything that operators store, or send to each other, and their fields."""

from enum import Enum
from typing import Any

from msgspec import inspect

from perdure.api.kinds.artifactset import ArtifactSetSpec
from perdure.api.kinds.cachedresult import CachedResultSpec
from perdure.api.kinds.deadletter import DeadLetterStatus
from perdure.api.kinds.historysegment import HistorySegmentSpec
from perdure.api.kinds.operation import OperationStatus
from perdure.api.kinds.payload import PayloadSpec
from perdure.api.kinds.retrypolicy import RetryPolicyStatus
from perdure.api.kinds.schedule import ScheduleStatus
from perdure.api.kinds.webhook import WebhookStatus
from perdure.api.kinds.workerdeployment import WorkerDeploymentStatus
from perdure.api.kinds.workflowlimit import WorkflowLimitStatus
from perdure.api.kinds.workflowrevision import WorkflowRevisionSpec
from perdure.api.kinds.workflowrun import WorkflowRunStatus
from perdure.engine.events import AnyEvent
from perdure.engine.starts import StartExtras
from perdure.engine.state import RunState
from perdure.frontend.deployments.rules import WorkerDeployment
from perdure.frontend.http.nexus import FoundEndpoint
from perdure.frontend.http.webhooks import WebhookAnswer
from perdure.frontend.matching.dispatch import QueueSettings
from perdure.frontend.matching.queues import OfferBatch, PolledQueues
from perdure.frontend.messages.tokens import AnyToken
from perdure.frontend.nexus.endpoints import Endpoint
from perdure.frontend.peers.calls import Failure as CallFailure
from perdure.frontend.peers.client import OfferTaken
from perdure.frontend.peers.http_calls import NexusAnswer, NexusCall, WebhookRequest
from perdure.frontend.schedules.messages import ClientOptions
from perdure.frontend.workflows.batches import Batch
from perdure.language.memory import Memory
from perdure.runtime.callbacks import CallbackToken
from perdure.runtime.chains import Continuation, Parent, ResetOrigin
from perdure.runtime.operation_requests import StartSignal
from perdure.schedule.run_manifests import ScheduledBy, ScheduleTimes
from perdure.schedule.state import ScheduleState

TOLERATED: list[Any] = [Batch, ScheduleTimes, CallbackToken, AnyToken]
"""What is written once, and never again. Operators ignore what only a newer version knows: a new field needs no state version."""
STORED = [
    *(
        RunState,
        AnyEvent,
        Memory,
        ScheduleState,
        Continuation,
        Parent,
        ResetOrigin,
        ScheduledBy,
        StartExtras,
        StartSignal,
        ClientOptions,
    ),
    *(OfferBatch, OfferTaken, CallFailure, PolledQueues, WorkerDeployment, Endpoint, QueueSettings),
    *(FoundEndpoint, NexusAnswer, NexusCall, WebhookAnswer, WebhookRequest),
]
"""What the operator stores as JSON, or sends to other operators, as a whole."""
MODELS = [
    *(WorkflowRunStatus, ScheduleStatus, WorkflowLimitStatus, RetryPolicyStatus, DeadLetterStatus),
    *(OperationStatus, WebhookStatus, WorkerDeploymentStatus),
    *(HistorySegmentSpec, CachedResultSpec, ArtifactSetSpec, PayloadSpec, WorkflowRevisionSpec),
]
"""The statuses, and the specs that only operators write."""


def leaves(kind: type[Any]) -> set[type[Any]]:
    """The types that are derived from a type, without those that others are derived from."""
    derived = kind.__subclasses__()
    return set().union(*map(leaves, derived)) if derived else {kind}


def parts(kind: Any) -> dict[Any, inspect.Type]:
    """All types with fields in a type, and all enumerations."""
    found: dict[Any, inspect.Type] = {}
    left = [inspect.type_info(kind)]
    while left:
        each = left.pop()
        has_fields = isinstance(each, inspect.StructType | inspect.DataclassType | inspect.TypedDictType)
        if has_fields and each.cls not in found:
            found[each.cls] = each
            left += [field.type for field in each.fields]
        if isinstance(each, inspect.EnumType):
            found[each.cls] = each
        for name in ("item_type", "key_type", "value_type"):
            left += [getattr(each, name)] if hasattr(each, name) else []
        for name in ("types", "item_types"):
            left += getattr(each, name, ())
    return found


def fields() -> dict[str, list[str]]:
    """The fields of all stored types, and the values of their enumerations, by name."""
    found: dict[str, list[str]] = {}
    for kind in STORED:
        for cls, described in parts(kind).items():
            if isinstance(described, inspect.EnumType):
                found[cls.__name__] = [str(each.value) for each in cls if isinstance(each, Enum)]
            else:
                found[f"{cls.__module__.removeprefix('perdure.').partition('.')[0]}.{cls.__name__}"] = [
                    each.encode_name for each in described.fields
                ]
    for model in MODELS:
        schema = model.model_json_schema(by_alias=True)
        for name, part in {model.__name__: schema, **schema.get("$defs", {})}.items():
            found[name] = [*part.get("properties", {}), *map(str, part.get("enum", ()))]
    return {name: sorted(each) for name, each in sorted(found.items())}
