"""Determine the condition `Ready` of WorkflowDefaults: check them together with a definition that takes all of them.

A mistake in them keeps all runs of the namespace from starting, so it is reported before the next one starts. They are checked
again when they, the Workflows of their handlers, or the RetryPolicies of the namespace change, and if they are not ready after a
while, because a policy or a Workflow of another namespace can be fixed where the operator does not watch.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import pydantic

from perdure.api.kinds.workflow import WorkflowSpec
from perdure.api.labels import API_VERSION
from perdure.api.reasons import ConditionReason, EventReason
from perdure.controller.pods.attempt_pods import Pods
from perdure.controller.reconcile.record import write_status
from perdure.controller.retry_policies import Policies
from perdure.controller.workflows.definitions import Definitions
from perdure.controller.workflows.readiness import RETRY_DELAY, reported, status, verdict
from perdure.kube import client as kube
from perdure.kube.events import Recorder
from perdure.language.checks import default_mistakes
from perdure.language.defaults import PROBE, NamespaceDefaults, within
from perdure.language.reuse import reference_from

_EVENTS: Final = {
    ConditionReason.INVALID_SPEC: EventReason.INVALID_SPEC,
    ConditionReason.WORKFLOW_NOT_FOUND: EventReason.WORKFLOW_NOT_FOUND,
    ConditionReason.RETRY_POLICY_NOT_FOUND: EventReason.RETRY_POLICY_NOT_FOUND,
    ConditionReason.POD_REFUSED: EventReason.POD_REFUSED,
}


@dataclass(frozen=True, slots=True)
class _Verdict:
    reason: ConditionReason
    message: str = ""

    @property
    def ready(self) -> bool:
        return self.reason is ConditionReason.ACCEPTED


class DefaultsReadiness:
    """Reports whether the WorkflowDefaults of namespaces can be used."""

    def __init__(
        self, client: kube.Client, definitions: Definitions, pods: Pods, policies: Policies, recorder: Recorder
    ) -> None:
        self._client = client
        self._definitions = definitions
        self._pods = pods
        self._policies = policies
        self._recorder = recorder
        self._libraries: dict[str, frozenset[str] | None] = {}
        """The Workflows of the handlers, by namespace; None: not known yet."""

    def has(self, namespace: str) -> bool:
        """Whether a namespace has WorkflowDefaults."""
        return namespace in self._libraries

    def users(self, namespace: str, library: str) -> list[str]:
        """The namespaces whose condition is outdated after a change of a Workflow."""
        return [
            where
            for where, libraries in self._libraries.items()
            if libraries is None or reference_from(where, namespace, library) in libraries
        ]

    def forget(self, namespace: str) -> None:
        """Drop deleted WorkflowDefaults."""
        self._libraries.pop(namespace, None)

    async def reconcile(self, namespace: str, name: str, now: datetime) -> datetime | None:
        """Check WorkflowDefaults, and update their status if the result is new.

        Args:
            namespace: Their namespace.
            name: Their name.
            now: The time.

        Returns:
            When to check again; None: when they change.

        Raises:
            NotYetError: The definition with them is being compiled.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        before: Any = None
        found = _Verdict(ConditionReason.ACCEPTED)

        async def compute(obj: kube.Object) -> kube.Object | None:
            nonlocal before, found
            before = reported(obj.get("status") or {})
            found = await self._check(obj, namespace)
            generation = obj["metadata"].get("generation", 0)
            return status(
                obj.get("status") or {}, found.ready, found.reason, found.message, generation=generation, now=now
            )

        url = kube.path(kube.PERDURE, namespace, "workflowdefaults", name)
        obj = await write_status(self._client, url, compute)
        if obj is None:
            self.forget(namespace)
            return None
        if not found.ready and before != reported(obj.get("status") or {}):
            about = {"apiVersion": API_VERSION, "kind": "WorkflowDefaults", "metadata": obj["metadata"]}
            self._recorder.record(
                about, kind="Warning", reason=_EVENTS[found.reason], note=found.message, action="Check"
            )
        return None if found.ready else now + RETRY_DELAY

    async def _check(self, obj: kube.Object, namespace: str) -> _Verdict:
        spec = obj.get("spec") or {}
        self._libraries[namespace] = None  # before the requests: a change during them counts
        if wrong := default_mistakes(spec):
            return _Verdict(ConditionReason.INVALID_SPEC, "; ".join(map(str, wrong)))
        defaults = NamespaceDefaults(spec, obj["metadata"].get("generation", 0))
        composed = await self._definitions.complete(namespace, dict(PROBE), defaults)
        self._libraries[namespace] = composed.libraries
        found = composed.located(self._definitions.findings(namespace, composed.definition))
        ready, _, message = verdict([replace(each, path=within(each.path)) for each in (*composed.findings, *found)])
        if not ready:
            return _Verdict(ConditionReason.INVALID_SPEC, message)
        if composed.missing:
            missing_here = (replace(each, path=within(each.path)) for each in composed.missing)
            sentences = "; ".join(each.sentence(namespace) for each in missing_here)
            return _Verdict(ConditionReason.WORKFLOW_NOT_FOUND, f"{sentences}; runs start once there is one")
        named = self._definitions.retry_policies(namespace, composed.definition)
        if missing := await self._policies.missing(namespace, named):
            names = ", ".join(f"`{each}`" for each in missing)
            message = f"there is no valid RetryPolicy {names} in namespace `{namespace}`; runs start once there is one"
            return _Verdict(ConditionReason.RETRY_POLICY_NOT_FOUND, message)
        refusal = await self._refusal(namespace, composed.definition)
        if refusal is not None:
            return _Verdict(ConditionReason.POD_REFUSED, f"spec.activities.podTemplate: {refusal}")
        return _Verdict(ConditionReason.ACCEPTED, message)

    async def _refusal(self, namespace: str, definition: dict[str, Any]) -> str | None:
        """Why the API server would reject a pod with the defaults; None if it would not."""
        try:
            activity = WorkflowSpec.parse(definition).activities[0]
            return await self._pods.refusal(namespace, activity, {})
        except (TypeError, ValueError, RecursionError, pydantic.ValidationError) as error:
            return f"cannot be checked: {type(error).__name__}: {error}"
