"""The known RetryPolicies, their status, and their circuit breakers.

All runs that use the policy share the state of its breaker, which survives the operator: it is in the policy's status, and is
changed by compare-and-swap, like the status of a run. A change is recomputed from the current status until a write succeeds.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pydantic
import structlog

from perdure.api.kinds.retrypolicy import Circuit, CircuitBreaker, RetryPolicySpec, RetryPolicyStatus
from perdure.api.labels import API_VERSION
from perdure.api.models import mistakes
from perdure.api.phases import CircuitState
from perdure.api.reasons import EventReason
from perdure.controller.reconcile.newer_states import NewerStateReports, message_for
from perdure.controller.reconcile.record import write_status
from perdure.controller.state_versions import state_versions
from perdure.engine.retry import RetryPolicy
from perdure.engine.state import CircuitReport
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.kube.events import Recorder
from perdure.language.program import retry_rules
from perdure.observe import metrics
from perdure.runtime import circuits
from perdure.runtime.circuits import Held
from perdure.runtime.retry_policies import policy_status

Name = tuple[str, str]
"""Namespace and name."""

CHECK_AGAIN = timedelta(seconds=10)
"""Delay before the run of an attempt that a half-open breaker has admitted is checked."""

_EVENTS = {
    CircuitState.OPEN: ("Warning", EventReason.CIRCUIT_OPENED, "Open"),
    CircuitState.HALF_OPEN: ("Normal", EventReason.CIRCUIT_HALF_OPENED, "Try"),
    CircuitState.CLOSED: ("Normal", EventReason.CIRCUIT_CLOSED, "Close"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _KnownPolicy:
    """A RetryPolicy: the object, if known, and its parsed spec."""

    object: kube.Object
    policy: RetryPolicy | None
    """The policy; None if it is invalid."""
    breaker: CircuitBreaker | None
    mistakes: tuple[str, ...] = ()
    newer: str = ""
    """What only a newer version can read in its status."""

    @classmethod
    def read(cls, obj: kube.Object) -> "_KnownPolicy":
        newer = RetryPolicyStatus.newer_part(obj.get("status") or {}, state_versions().reads)
        try:
            spec = RetryPolicySpec.parse(obj.get("spec") or {})
        except pydantic.ValidationError as error:
            return cls(object=obj, policy=None, breaker=None, mistakes=tuple(mistakes(error)), newer=newer)
        name, breaker = obj["metadata"]["name"], spec.circuit_breaker
        policy = retry_rules(spec, name=name, circuit_breaker=breaker is not None)
        return cls(object=obj, policy=policy, breaker=breaker, newer=newer)

    @property
    def version(self) -> str:
        return str(self.object["metadata"]["resourceVersion"])

    @property
    def status(self) -> dict[str, Any]:
        return self.object.get("status") or {}

    @property
    def circuit(self) -> Circuit | None:
        """State of the breaker; None if the policy has none. An unreadable state counts as closed."""
        if self.breaker is None:
            return None
        try:
            return Circuit.parse(self.status.get("circuit") or {})
        except pydantic.ValidationError:
            return Circuit()


class Policies:
    """All RetryPolicies that this operator watches."""

    def __init__(self, client: kube.Client, recorder: Recorder) -> None:
        self.changed: Callable[[str], None] = lambda _namespace: None
        """Called with a namespace when one of its policies has changed, or its breaker admits more attempts."""
        self._client = client
        self._recorder = recorder
        self._known: dict[str, dict[str, _KnownPolicy]] = defaultdict(dict)
        self._policies: dict[str, dict[str, RetryPolicy]] = defaultdict(dict)
        self._locks: dict[Name, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._checked_at: dict[Name, datetime] = {}
        self._newer: dict[Name, NewerStateReports] = {}
        self._log = structlog.get_logger("perdure.policies")

    # The policies

    def of(self, namespace: str) -> Mapping[str, RetryPolicy]:
        """The valid policies of a namespace, by name."""
        return self._policies[namespace]

    def update(self, obj: kube.Object) -> None:
        """Process a RetryPolicy of a watch, or of a response of the API server."""
        meta = obj["metadata"]
        known = self._known[meta["namespace"]].get(meta["name"])
        same = known is not None and known.object["metadata"]["uid"] == meta["uid"]
        if known is not None and same and not kube.older(known.version, meta["resourceVersion"]):
            return
        self._keep(_KnownPolicy.read(obj))

    def delete(self, obj: kube.Object) -> None:
        """Process the deletion of a RetryPolicy."""
        meta = obj["metadata"]
        known = self._known[meta["namespace"]].get(meta["name"])
        if known is None or known.object["metadata"]["uid"] == meta["uid"]:
            self._forget(meta["namespace"], meta["name"])

    def _forget(self, namespace: str, name: str) -> None:
        self._known[namespace].pop(name, None)
        self._policies[namespace].pop(name, None)
        self._locks.pop((namespace, name), None)
        self._checked_at.pop((namespace, name), None)
        self._newer.pop((namespace, name), None)
        metrics.forget_circuit(namespace, name)
        self.changed(namespace)

    def _keep(self, known: _KnownPolicy) -> None:
        meta = known.object["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        before = self._known[namespace].get(name)
        self._known[namespace][name] = known
        if known.policy is None:
            self._policies[namespace].pop(name, None)
        else:
            self._policies[namespace][name] = known.policy
        metrics.show_circuit(namespace, name, known.circuit.state if known.circuit else None)
        if before is None or before.policy != known.policy or _admits_more(before.circuit, known.circuit):
            self.changed(namespace)

    async def missing(self, namespace: str, names: Collection[str]) -> list[str]:
        """Return the names without a valid policy. Policies that no watch has shown yet are read.

        Raises:
            RequestError: The Kubernetes API request failed.
        """
        for name in names:
            if name not in self._known[namespace]:
                await self._read(namespace, name)
        return sorted(name for name in names if name not in self._policies[namespace])

    async def _read(self, namespace: str, name: str) -> _KnownPolicy | None:
        try:
            obj = await self._client.get(kube.path(kube.PERDURE, namespace, "retrypolicies", name))
        except kube.NotFoundError:
            if name in self._known[namespace]:
                self._forget(namespace, name)
            return None
        self.update(obj)
        return self._known[namespace].get(name)

    # Status

    async def reconcile(self, namespace: str, name: str) -> None:
        """Update the status of a policy from its spec.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        await self._change(namespace, name, lambda _breaker, circuit: circuit)

    async def _change(
        self, namespace: str, name: str, change: Callable[[CircuitBreaker, Circuit], Circuit]
    ) -> Circuit | None:
        """Change the state of a breaker, update the rest of the status, and return the recorded state."""
        async with self._locks[namespace, name]:
            current = self._known[namespace].get(name)
            if current is None:
                return None
            circuit: Circuit | None = None

            async def compute(obj: kube.Object) -> kube.Object | None:
                nonlocal current, circuit
                if current is None or current.object is not obj:  # another client has written
                    metrics.CIRCUIT_CONFLICTS.inc()
                    self.update(obj)
                    current = _KnownPolicy.read(obj)
                if current.newer:
                    reports = self._newer.setdefault((namespace, name), NewerStateReports("RetryPolicy", namespace))
                    return reports.ready_status(obj, current.newer, wall_clock())
                before = current.circuit
                circuit = change(current.breaker, before) if current.breaker and before else None
                status = policy_status(
                    current.status,
                    current.policy,
                    circuit,
                    generation=obj["metadata"].get("generation", 1),
                    mistakes=current.mistakes,
                    now=wall_clock(),
                )
                return state_versions().stamp(status, current.status)

            url = kube.path(kube.PERDURE, namespace, "retrypolicies", name)
            obj = await write_status(self._client, url, compute, current.object)
            if obj is None:
                if name in self._known[namespace]:
                    self._forget(namespace, name)
                return None
            if obj is not current.object:
                before = current.circuit
                self._keep(replace(current, object=obj))
                if current.newer:
                    about = {"apiVersion": API_VERSION, "kind": "RetryPolicy", "metadata": obj["metadata"]}
                    note = message_for(current.newer)
                    self._recorder.record(
                        about, kind="Warning", reason=EventReason.NEWER_STATE, note=note, action="Read"
                    )
                if circuit is not None:
                    self._report_change(obj, before, circuit)
            return circuit

    def _report_change(self, obj: kube.Object, before: Circuit | None, circuit: Circuit) -> None:
        if before is None or before.state is circuit.state:
            return
        kind, reason, action = _EVENTS[circuit.state]
        metrics.CIRCUIT_CHANGES.labels(state=circuit.state.value).inc()
        message = next(c["message"] for c in obj["status"]["conditions"] if c["type"] == "CircuitClosed")
        about = {"apiVersion": API_VERSION, "kind": "RetryPolicy", "metadata": obj["metadata"]}
        note = f"The circuit is {circuit.state}" + (f": {message}" if message else "")
        self._recorder.record(about, kind=kind, reason=reason, note=note, action=action)

    # Circuit breakers

    async def admit(self, namespace: str, name: str, attempt: str) -> Held | None:
        """Admit an attempt, and record this if necessary. Return None if the attempt may start, otherwise why it is held.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        held: Held | None = None

        def change(_breaker: CircuitBreaker, circuit: Circuit) -> Circuit:
            nonlocal held
            circuit, held = circuits.admit(name, circuit, attempt, wall_clock())
            return circuit

        known = self._known[namespace].get(name)
        if known is not None and known.breaker is not None and known.newer:
            newer = f"a newer version of Perdure has written the circuit breaker of RetryPolicy `{name}`"
            return Held(f"{newer}, and this one cannot read it", until=None)
        before = known.circuit if known is not None else None
        if before is None:
            return None  # the policy was deleted or no longer has a breaker
        circuit: Circuit | None = change(CircuitBreaker(), before)
        if circuit is not before:
            circuit = await self._change(namespace, name, change)
        if held is not None and circuit is not None and await self._is_abandoned(namespace, name, circuit.trial):
            trial = str(circuit.trial)
            await self._change(namespace, name, lambda _breaker, found: circuits.release(found, trial))
            await self._change(namespace, name, change)
        return held

    async def _is_abandoned(self, namespace: str, name: str, trial: str | None) -> bool:
        """Whether an admitted attempt will never report its end because its run was deleted or the operator was killed."""
        now = wall_clock()
        if trial is None or self._checked_at.get((namespace, name), now - CHECK_AGAIN) > now - CHECK_AGAIN:
            return False
        self._checked_at[namespace, name] = now
        named = circuits.read_holder(trial)
        if named is None:
            return True
        try:
            obj = await self._client.get(kube.path(kube.PERDURE, namespace, "workflowruns", named.run))
        except (kube.NotFoundError, ValueError):
            return True
        if obj["metadata"]["uid"] != named.uid:
            return True
        event, attempt = named.event, named.attempt
        state = (obj.get("status") or {}).get("state") or {}
        open_attempt = (state.get("activities") or {}).get(str(event), {}).get("attempt", 1)
        is_open = str(event) in (state.get("activities") or {}) and open_attempt == attempt
        return not is_open and f"{event}/{attempt}" not in (state.get("reports") or {})

    async def report(self, namespace: str, attempt: str, report: CircuitReport) -> bool:
        """Report the end of an attempt to a circuit breaker; repeating the report changes nothing.

        Returns:
            Whether the report was processed: not by a breaker whose state a newer version has written.

        Raises:
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        await self._change(
            namespace, report.policy, lambda breaker, circuit: circuits.count(breaker, circuit, attempt, report)
        )
        known = self._known[namespace].get(report.policy)
        return known is None or known.breaker is None or not known.newer


def _admits_more(before: Circuit | None, after: Circuit | None) -> bool:
    """Whether blocked attempts may be admitted now."""
    if before is None or after is None:
        return before is not after
    return before.state is not after.state or (before.trial is not None and after.trial is None)
