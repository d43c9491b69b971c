"""CachedResults: which earlier result an attempt can use, and the object that stores a new one. Pure."""

import hashlib
import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from perdure.api import labels
from perdure.api.kinds.cachedresult import CachedResultSpec
from perdure.api.kinds.workflow import MAX_CACHED_BYTES, WORK_KINDS, Activity
from perdure.api.labels import API_VERSION
from perdure.api.models import json_fields
from perdure.api.names import cached_result_name, label_value
from perdure.api.state_versions import unknown_in, unreadable, version_of
from perdure.api.times import format_time, read_kubernetes_time
from perdure.engine.inputs import AttemptCompleted
from perdure.runtime.attempts import KubeObject, RunRef
from perdure.runtime.commits import canonical

_WORK: Final = frozenset({*WORK_KINDS, "artifacts", "workspaces", "pod_spec_patch", "services"})
"""The fields of an activity that determine its result."""
_FIELDS: Final = json_fields(CachedResultSpec)


@dataclass(frozen=True, slots=True)
class CacheKey:
    """Identifies a cached result in its namespace."""

    activity: str
    """Name of the activity."""
    definition_hash: str
    """Hash of its work."""
    key: str
    """Value of the key of its cache."""

    @classmethod
    def of(cls, definition: Activity, key: str) -> "CacheKey":
        """The identity of the result of an activity with a key."""
        work = definition.model_dump(mode="json", by_alias=True, exclude_none=True, include=set(_WORK))
        return cls(definition.name, hashlib.sha256(canonical(work)).hexdigest(), key)

    @property
    def name(self) -> str:
        """The name of the CachedResult."""
        return cached_result_name(self.activity, self.definition_hash, self.key)

    def matches(self, cached: KubeObject, max_age: timedelta, now: datetime) -> bool:
        """Whether a CachedResult has this identity, and is neither expired nor too old.

        Args:
            cached: The CachedResult.
            max_age: Its maximum age.
            now: The time.
        """
        meta, spec = cached["metadata"], cached["spec"]
        completed, expiry = (
            read_kubernetes_time(spec.get("completedTime")),
            read_kubernetes_time(spec.get("expiryTime")),
        )
        is_same = CacheKey(spec["activity"], spec["definitionHash"], spec["key"]) == self
        if not is_same or meta.get("deletionTimestamp") or completed is None or expiry is None:
            return False
        return now < min(completed + max_age, expiry)


def newer_part(cached: KubeObject, reads: int) -> str:
    """Name the part of a CachedResult that only a newer version can read; empty if there is none.

    Args:
        cached: The CachedResult.
        reads: The newest state version that this operator reads.
    """
    return unreadable(version_of(cached["spec"]), reads) or unknown_in(cached["spec"], _FIELDS)


def build_cached_result(
    key: CacheKey, run: RunRef, step: str, completed: AttemptCompleted, now: datetime, expiry: datetime
) -> KubeObject:
    """Build the CachedResult of an attempt that has completed.

    Args:
        key: Its identity.
        run: The run of the attempt.
        step: The path of its step.
        completed: The result of the attempt.
        now: When it completed.
        expiry: When to delete it.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": "CachedResult",
        "metadata": {
            "name": key.name,
            "namespace": run.namespace,
            "labels": {
                labels.ACTIVITY_LABEL: label_value(key.activity),
                labels.RUN_LABEL: label_value(run.name),
                labels.EXPIRES_LABEL: str(math.ceil(expiry.timestamp())),
            },
        },
        "spec": {
            "activity": key.activity,
            "definitionHash": key.definition_hash,
            "key": key.key,
            **({} if completed.result is None else {"result": completed.result}),
            **({"artifacts": dict(completed.artifacts)} if completed.artifacts else {}),
            "workflowRun": {"name": run.name, "workflowId": run.workflow_id, "runId": run.uid},
            "step": step,
            "completedTime": format_time(now),
            "expiryTime": format_time(expiry),
        },
    }


def too_large(cached: KubeObject) -> str:
    """Say why a CachedResult is too large; empty if it is not."""
    spec = cached["spec"]
    size = len(msgspec.json.encode([spec.get("result"), spec.get("artifacts")]))
    if size <= MAX_CACHED_BYTES:
        return ""
    return f"the result has {size} bytes, but at most {MAX_CACHED_BYTES} can be cached; return a reference to the data"
