"""Acquire the WorkflowLimits of a run's definition, and after a reset, of its steps. It starts once it holds all of them.

A run takes all of its limits together, or none (`controller.limits`). It keeps them after a restart of the operator, because the
status of a limit has its holders.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from perdure.api.kinds.workflowlimit import LimitEntry, LimitTaker, LimitTakers, LimitUse, OverflowPolicy, StepLimit
from perdure.api.kinds.workflowrun import WorkflowRunSpec
from perdure.api.reasons import ConditionReason
from perdure.api.times import parse_time
from perdure.controller.errors import NotReadyError, RefusedError
from perdure.controller.limits import Claim, Full, Unusable, Wanted, limit_entry, names_of, taken_together
from perdure.controller.reconcile.record import Record
from perdure.controller.runs.deciders import scope_of
from perdure.controller.runs.effects.context import EffectContext
from perdure.controller.services import Services
from perdure.engine import inputs
from perdure.engine.state import HeldLimits
from perdure.language.keys import limit_keys, requested_limits
from perdure.language.program import Program
from perdure.runtime.chains import parent_of

_TURN: Final = "the run starts when its turn comes"


class ReplacedError(Exception):
    """A newer run replaces the waiting one, which ends without starting."""

    def __init__(self, request: inputs.CancelRequested) -> None:
        super().__init__(request.reason)
        self.request = request
        """What ends the run."""


class RunLimits:
    """The limits of one run that has not started."""

    def __init__(self, services: Services, context: EffectContext, record: Record) -> None:
        """Create it without limits.

        Args:
            services: The shared services.
            context: The run, and the other runs.
            record: The stored record of the run.
        """
        self._limits = services.limits
        self._run = context.run
        self._peers = context.peers
        self._record = record

    async def acquire(
        self,
        program: Program | None,
        values: Any,
        spec: WorkflowRunSpec,
        now: datetime,
        holds: Collection[HeldLimits] = (),
    ) -> None:
        """Acquire all limits of the run's definition and, after a reset, those that steps hold at its point: all, or none.

        Args:
            program: The program of the run; None if workers decide it.
            values: The input, including defaults.
            spec: The spec of the run.
            now: The time.
            holds: The holds of steps at the point where a reset begins.

        Raises:
            NotReadyError: The run must wait for a limit.
            RefusedError: The run must not wait, or has waited too long.
            ReplacedError: A newer run replaces it.
            InvalidWorkflowError: A key cannot be evaluated.
            ConflictError: Another client has written the run, so it may no longer wait.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        created = parse_time(self._record.object["metadata"]["creationTimestamp"])
        schedule = scope_of(self._record.object).schedule
        uses: dict[str, LimitUse | StepLimit] = {}
        wanted: list[Wanted] = []
        for use, key in limit_keys(program, values, schedule) if program is not None else ():
            entry = self._entry(use, key, spec.priority, created, now)
            wanted.append(self._wanted(use, entry, uses))
        for hold in holds:
            for step_use, key in requested_limits(hold.limits):
                entry = limit_entry(self._run, hold, key, spec.priority, created, now)
                wanted.append(self._wanted(step_use, entry, uses))
        named, selecting = {each.limit for each in wanted if each.claim.entry.event_id is None}, self._selecting(spec)
        for name, key in selecting:
            if name not in named:
                use = LimitUse(name=name)
                wanted.append(self._wanted(use, self._entry(use, key, spec.priority, created, now), uses))
        await self._limits.withdraw(self._run, self._run.uid, {each.limit for each in wanted})
        if not wanted:
            return
        group = taken_together(wanted)
        # An outdated state must not take a limit for a step that has ended, nor replace another run.
        must_confirm = any(each.claim.entry.event_id or each.claim.entry.cancels_running for each in group)
        if must_confirm and not self._limits.lists_all(self._run.namespace, group):
            await self._record.confirm()
        missing = await self._limits.acquire(self._run.namespace, group)
        if missing and self._selecting(spec) != selecting:  # one was deleted or changed in the meantime
            await self.acquire(program, values, spec, now, holds)
        elif missing:
            await self._wait(group, missing, uses, now)

    def _selecting(self, spec: WorkflowRunSpec) -> list[tuple[str, str]]:
        """The limits that select the run, with its keys."""
        if parent_of(self._record.object) is not None:
            return []
        workflow = spec.workflow
        name = (workflow.name if workflow is not None else None) or ""
        type_ = (workflow.type if workflow is not None else None) or name
        task_queue = (workflow.task_queue if workflow is not None else None) or ""
        return self._limits.selecting(
            self._run.namespace,
            LimitTaker(kind=LimitTakers.RUNS, workflow=name, type=type_, task_queue=task_queue, group=type_),
        )

    def _entry(self, use: LimitUse, key: str, priority: int, created: datetime, now: datetime) -> LimitEntry:
        return LimitEntry(
            run=self._run.name,
            run_id=self._run.uid,
            key=key,
            priority=priority,
            cancels_running=use.overflow_policy is OverflowPolicy.CANCEL_RUNNING,
            created=created,
            since=now,
        )

    def _wanted(self, use: LimitUse | StepLimit, entry: LimitEntry, uses: dict[str, LimitUse | StepLimit]) -> Wanted:
        uses[f"{use.name}/{entry.id}"] = use
        return Wanted(use.name, Claim(self._run, entry, queues=use.overflow_policy.value != OverflowPolicy.FAIL.value))

    async def _wait(
        self,
        group: Sequence[Wanted],
        missing: Iterable[tuple[Wanted, Full | Unusable]],
        uses: Mapping[str, LimitUse | StepLimit],
        now: datetime,
    ) -> None:
        """Report what is missing.

        Raises:
            NotReadyError: The run must wait.
            RefusedError: The run must not wait, or has waited too long.
            ReplacedError: A newer run replaces it.
            ConflictError: Another client has written the run.
            RequestError: The Kubernetes API request failed.
        """
        reports: list[NotReadyError] = []
        times: list[datetime] = []
        for place, answer in missing:
            use, entry = uses[f"{place.limit}/{place.id}"], place.claim.entry
            due = None if use.wait_timeout is None else entry.created + use.wait_timeout
            match answer:
                case Unusable(newer=True):
                    message = f"{answer.reason(use.name, self._run.namespace)}; the run waits for a newer operator"
                    raise NotReadyError(ConditionReason.NEWER_STATE, message)
                case Unusable():
                    message = answer.reason(use.name, self._run.namespace)
                    _check_time(due, now, message)
                    message = f"{message}; the run starts once there is one"
                    reports.append(NotReadyError(ConditionReason.LIMIT_NOT_FOUND, message))
                case Full(replaced_by=str(newer)):
                    reason, request_id = _replaces(newer, use.name), f"{self._run.uid}/replaced/{use.name}"
                    raise ReplacedError(
                        inputs.CancelRequested(request_id=request_id, reason=reason, identity=inputs.OPERATOR)
                    )
                case Full():
                    failure = answer.failure(use.name, entry.key, "run")
                    if not place.claim.queues:
                        raise RefusedError(ConditionReason.LIMIT_REACHED, f"{failure}, and it is full")
                    _check_time(due, now, failure)
                    if answer.to_cancel is not None:
                        await self._cancel(answer.to_cancel, use)
                    names = names_of(group)
                    turn = f"the run starts when it can take {names} together" if names else _TURN
                    reason = f"{answer.reason(use.name, entry.key, 'run')}; {turn}"
                    reports.append(NotReadyError(ConditionReason.LIMIT_REACHED, reason))
                    times += [answer.until] if answer.until is not None else []
            times += [due] if due is not None else []
        first = reports[0]
        raise NotReadyError(first.reason, first.message, until=min(times, default=None))

    async def _cancel(self, holder: LimitEntry, use: LimitUse | StepLimit) -> None:
        """Request the cancellation of a run that holds a limit."""
        await self._record.confirm(afresh=True)  # only a run that is still waiting may stop another one
        other = self._peers.directory.get(holder.run_id)
        if other is None:
            return
        request = inputs.CancelRequested(
            request_id=f"{self._run.uid}/limit/{use.name}",
            reason=_replaces(self._run.name, use.name),
            identity=inputs.OPERATOR,
        )
        self._peers.send(other, request, lambda _: None)


def _replaces(newer: str, limit: str) -> str:
    """Why a run is cancelled."""
    return f"`{newer}` replaces it in WorkflowLimit `{limit}` (overflowPolicy: CancelRunning)"


def _check_time(due: datetime | None, now: datetime, message: str) -> None:
    """Check that a run may still wait.

    Raises:
        RefusedError: The run has waited for its `waitTimeout`.
    """
    if due is not None and due <= now:
        raise RefusedError(ConditionReason.LIMIT_REACHED, f"{message}; the `waitTimeout` of the run has expired")
