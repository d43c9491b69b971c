"""Determine the condition `Ready` of Workflows: check the definition, and test its pods with a dry run.

The definition is checked when the operator starts and whenever it changes. The dry run shows a typo in a `container`, or a
policy that rejects it, before anyone runs the Workflow. A rejection by a policy or a namespace can be fixed without changing the
Workflow, so a rejected pod is retried after a while; it prevents no run from starting.

A Workflow with a missing RetryPolicy is not ready either, because its runs wait for the policy. It is checked again when the
RetryPolicies of its namespace change. The same applies to the Workflows from which it copies parts (`from`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

import pydantic

from perdure.api.kinds.status import Condition, find_condition, read_conditions, set_condition
from perdure.api.kinds.workflow import WorkflowSpec
from perdure.api.labels import API_VERSION
from perdure.api.reasons import ConditionReason, ConditionType, EventReason
from perdure.controller.pods.attempt_pods import Pods
from perdure.controller.pods.workspaces import claim_refusal
from perdure.controller.reconcile.record import write_status
from perdure.controller.retry_policies import Policies
from perdure.controller.workflows.definitions import Definitions, content_of
from perdure.kube import client as kube
from perdure.kube.events import Recorder
from perdure.language.compiler import NO_STEPS
from perdure.language.program import Finding, Severity
from perdure.language.reuse import Composition, is_library, reference_from
from perdure.language.services import compiled_service, service_activity

RETRY_DELAY = timedelta(minutes=1)
"""Delay before a rejected pod is retried."""
_MAX_SHOWN = 10
"""Maximum number of findings in the message."""
_FREE_FORM = frozenset(
    {
        "input",
        "output",
        "set",
        "podTemplate",
        "container",
        "script",
        "http",
        "resource",
        "podSpecPatch",
        "services",
        "schema",
        "default",
        "details",
    }
)
"""Fields with arbitrary content of the user."""


_EVENTS = {
    ConditionReason.PAYLOAD_TOO_LARGE: EventReason.PAYLOAD_TOO_LARGE,
    ConditionReason.POD_REFUSED: EventReason.POD_REFUSED,
    ConditionReason.RETRY_POLICY_NOT_FOUND: EventReason.RETRY_POLICY_NOT_FOUND,
    ConditionReason.WORKFLOW_NOT_FOUND: EventReason.WORKFLOW_NOT_FOUND,
}


_RETRIED = frozenset({ConditionReason.POD_REFUSED, ConditionReason.WORKFLOW_NOT_FOUND})
"""What can be fixed where the operator does not watch: by a policy, or in another namespace."""


@dataclass(frozen=True, slots=True)
class _Named:
    """The RetryPolicies that a Workflow names."""

    all: frozenset[str]
    missing: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Checked:
    """A Workflow and the verdict about it."""

    workflow: kube.Object
    ready: bool
    reason: ConditionReason
    message: str
    revision: str | None = None
    """Name of the revision with the definition, if it was stored."""

    def status(self, now: datetime) -> dict[str, Any]:
        before, generation = self.workflow.get("status") or {}, self.workflow["metadata"].get("generation", 0)
        checked = status(before, self.ready, self.reason, self.message, generation=generation, now=now)
        return checked if self.revision is None else {**checked, "revision": self.revision}


class Readiness:
    """Reports whether Workflows can run."""

    def __init__(
        self, client: kube.Client, definitions: Definitions, pods: Pods, policies: Policies, recorder: Recorder
    ) -> None:
        self._client = client
        self._definitions = definitions
        self._pods = pods
        self._policies = policies
        self._recorder = recorder
        self._naming: dict[str, dict[str, _Named]] = {}
        """The RetryPolicies that each Workflow names, by namespace and Workflow."""
        self._libraries: dict[str, dict[str, frozenset[str] | None]] = {}
        """The libraries from which each Workflow copies parts, by namespace and Workflow; None: not known yet."""
        self._generations: dict[str, int | None] = {}
        """The last seen generation of each Workflow, by UID."""

    def update(self, obj: kube.Object) -> bool:
        """Process the creation or change of a Workflow; return whether it is new, and not only a write of the status."""
        meta = obj["metadata"]
        changed: bool = self._generations.get(meta["uid"]) != meta.get("generation")
        self._generations[meta["uid"]] = meta.get("generation")
        return changed

    def delete(self, obj: kube.Object) -> None:
        """Process the deletion of a Workflow."""
        self._generations.pop(obj["metadata"]["uid"], None)
        self.forget(obj["metadata"]["namespace"], obj["metadata"]["name"])

    def stale(self, namespace: str) -> list[str]:
        """The Workflows of a namespace whose condition is outdated after a change of RetryPolicies."""
        exist = self._policies.of(namespace)
        naming = self._naming.get(namespace, {})
        return [
            name for name, named in naming.items() if {each for each in named.all if each not in exist} != named.missing
        ]

    def users(self, namespace: str, library: str) -> list[tuple[str, str]]:
        """The Workflows, by namespace and name, whose condition is outdated after a change of a library."""
        return [
            (where, name)
            for where, using in self._libraries.items()
            for name, libraries in using.items()
            if libraries is None or reference_from(where, namespace, library) in libraries
        ]

    def forget(self, namespace: str, name: str) -> None:
        """Drop a deleted Workflow."""
        _keep(self._naming, namespace, name, None)
        _keep(self._libraries, namespace, name, None)

    async def reconcile(self, namespace: str, name: str, now: datetime) -> datetime | None:
        """Check a Workflow, and update its status if the result is new.

        Args:
            namespace: Its namespace.
            name: Its name.
            now: The time.

        Returns:
            When to check again; None: when it changes.

        Raises:
            NotYetError: The definition is being compiled.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        checked: _Checked | None = None

        async def compute(workflow: kube.Object) -> kube.Object | None:
            nonlocal checked
            checked = None
            if workflow["metadata"].get("deletionTimestamp"):
                return None
            checked = await self._check(workflow)
            return checked.status(now)

        url = kube.path(kube.PERDURE, namespace, "workflows", name)
        try:
            workflow = await write_status(self._client, url, compute)
        except kube.TooLargeError as error:
            assert checked is not None
            note = f"the spec is too large to leave room for the status ({error.message}): shorten it"
            message = f"{note}; {checked.reason}: {checked.message}" if checked.message else note
            self._warn(checked.workflow, ConditionReason.PAYLOAD_TOO_LARGE, message)
            return None
        if workflow is None or checked is None:
            self.forget(namespace, name)
            return None
        if not checked.ready and reported(checked.workflow.get("status") or {}) != reported(workflow["status"]):
            self._warn(workflow, checked.reason, checked.message)
        return now + RETRY_DELAY if checked.reason in _RETRIED else None

    async def _check(self, workflow: kube.Object) -> _Checked:
        namespace, name, spec = workflow["metadata"]["namespace"], workflow["metadata"]["name"], workflow["spec"]
        self._libraries.setdefault(namespace, {})[name] = None  # before the requests: a change during them counts
        composed = await self._definitions.compose(namespace, spec)
        _keep(self._libraries, namespace, name, composed.libraries or None)
        found = composed.located(self._definitions.findings(namespace, composed.definition))
        if is_library(spec):
            found = [each for each in found if each != NO_STEPS]
        ready, reason, message = verdict([*composed.findings, *found])
        try:
            if ready and composed.missing:
                sentences = (each.sentence(namespace) for each in composed.missing[:_MAX_SHOWN])
                message = f"{'; '.join(sentences)}; runs start once there is one"
                ready, reason = False, ConditionReason.WORKFLOW_NOT_FOUND
            elif ready and (missing := await self._missing_policies(workflow, composed)):
                ready, reason, message = False, ConditionReason.RETRY_POLICY_NOT_FOUND, missing
            elif ready and (refusals := await self._refusals(workflow, composed)):
                ready, reason, message = False, ConditionReason.POD_REFUSED, "; ".join(refusals)
        except (TypeError, ValueError, RecursionError) as error:
            # Some stored pods cannot be sent to the API server again, for example because values nest too deeply.
            ready, reason = False, ConditionReason.INVALID_SPEC
            message = f"the pods of its activities cannot be checked: {type(error).__name__}: {error}"
        revision = await self._stored(namespace, name, spec) if ready else None
        return _Checked(workflow, ready, reason, message, revision)

    async def _stored(self, namespace: str, name: str, spec: dict[str, Any]) -> str | None:
        """Store a valid definition as a revision, and return its name; None if that is not possible."""
        composed = await self._definitions.complete(namespace, spec, await self._definitions.defaults(namespace))
        if composed.missing or composed.findings:
            return None
        reference = await self._definitions.revisions.keep(namespace, content_of(name, spec, composed))
        return None if reference is None else reference.name

    async def _missing_policies(self, workflow: kube.Object, composed: Composition) -> str:
        """The missing RetryPolicies that a Workflow names; empty if all exist."""
        meta = workflow["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        named = self._definitions.retry_policies(namespace, composed.definition)
        missing = await self._policies.missing(namespace, named)
        _keep(self._naming, namespace, name, _Named(named, frozenset(missing)) if named else None)
        where = {choice: path for path, choice in reversed([*named_policies(composed.definition, "spec")])}
        return "; ".join(
            f"{composed.place(where.get(each, 'spec'))}: there is no valid RetryPolicy `{each}` in namespace `{namespace}`; "
            "runs start once there is one"
            for each in missing[:_MAX_SHOWN]
        )

    async def _refusals(self, workflow: kube.Object, composed: Composition) -> list[str]:
        """Why the API server would reject claims and pods of a definition; empty if they were ready before."""
        ready = _condition(workflow.get("status") or {})
        generation = workflow["metadata"].get("generation", 0)
        if ready is not None and ready.observed_generation == generation and ready.reason == ConditionReason.ACCEPTED:
            return []
        refusals, namespace, spec = [], workflow["metadata"]["namespace"], _spec(composed.definition)
        for i, workspace in enumerate(spec.workspaces):
            refusal = await claim_refusal(self._client, namespace, workspace)
            if refusal is not None:
                refusals.append(f"spec.workspaces[{i}].volumeClaimTemplate: {refusal}")
        workspaces = {workspace.name: workspace for workspace in spec.workspaces}
        for i, activity in enumerate(spec.activities):
            refusal = await self._pods.refusal(namespace, activity, workspaces)
            if refusal is not None:
                place = composed.place(f"spec.activities[{i}].{activity.work}")
                refusals.append(f"{place}: {refusal}")
        lists = [("spec", "", spec.services)]
        lists += [(f"spec.blocks[{i}]", block.name, block.services) for i, block in enumerate(spec.blocks)]
        for path, block_name, services in lists:
            for i, service in enumerate(services):
                activity = service_activity(compiled_service(block_name, service).activity, service)
                refusal = await self._pods.refusal(namespace, activity, workspaces)
                if refusal is not None:
                    refusals.append(f"{composed.place(f'{path}.services[{i}]')}: {refusal}")
        return refusals

    def _warn(self, workflow: kube.Object, reason: ConditionReason, message: str) -> None:
        about = {"apiVersion": API_VERSION, "kind": "Workflow", "metadata": workflow["metadata"]}
        event = _EVENTS.get(reason, EventReason.INVALID_SPEC)
        self._recorder.record(about, kind="Warning", reason=event, note=message, action="Check")


def named_policies(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Find the RetryPolicies that a definition names.

    Args:
        value: The definition, or a part of it.
        path: The path of that part.

    Yields:
        The path of each name, and the name.
    """
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from named_policies(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == "retryPolicy" and isinstance(item, dict) and isinstance(item.get("name"), str):
                yield f"{path}.{key}.name", item["name"]
            elif key not in _FREE_FORM:
                yield from named_policies(item, f"{path}.{key}")


def verdict(findings: Sequence[Finding]) -> tuple[bool, ConditionReason, str]:
    """Whether a definition is valid, the reason, and the message: the errors or, if there are none, the warnings."""
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    shown = errors or [finding for finding in findings if finding.severity is Severity.WARNING]
    message = "; ".join(map(str, shown[:_MAX_SHOWN]))
    if len(shown) > _MAX_SHOWN:
        message += f"; and {len(shown) - _MAX_SHOWN} more: `perdure lint` shows all"
    if errors:
        return False, ConditionReason.INVALID_SPEC, message
    return True, ConditionReason.ACCEPTED, f"valid, with warnings: {message}" if message else ""


def status(
    before: dict[str, Any], ready: bool, reason: ConditionReason, message: str, *, generation: int, now: datetime
) -> dict[str, Any]:
    """The status of a Workflow.

    Args:
        before: The current status, which equals the result if nothing is new.
        ready: Whether the Workflow can run.
        reason: The reason of the condition.
        message: The message of the condition.
        generation: The generation of the checked spec.
        now: The time.
    """
    conditions = set_condition(
        read_conditions(before),
        ConditionType.READY,
        ready,
        reason,
        message,
        now=now,
        observed_generation=generation,
    )
    return {**before, "observedGeneration": generation, "conditions": [each.dump() for each in conditions]}


_Value = TypeVar("_Value")


def _keep(known: dict[str, dict[str, _Value]], namespace: str, name: str, value: _Value | None) -> None:
    """Remember a value of a Workflow; None: forget it."""
    if value is not None:
        known.setdefault(namespace, {})[name] = value
    elif namespace in known:
        known[namespace].pop(name, None)
        if not known[namespace]:
            del known[namespace]


def _spec(definition: dict[str, Any]) -> WorkflowSpec:
    try:
        return WorkflowSpec.parse(definition)
    except pydantic.ValidationError:
        return WorkflowSpec()


def _condition(status: dict[str, Any]) -> Condition | None:
    conditions = read_conditions(status)
    return find_condition(conditions, ConditionType.READY)


def reported(status: dict[str, Any]) -> tuple[str, str] | None:
    """Return the reason and the message of the condition `Ready`; None without it."""
    condition = _condition(status)
    return (condition.reason, condition.message) if condition else None
