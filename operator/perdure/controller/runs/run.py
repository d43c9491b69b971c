"""One WorkflowRun in this process: what it observes, the requests to it, and its reconciliation.

    observed  (watch: the run, its pods)  ─┐
    read      (a deadline is due)         ─┼─▶ step ─▶ commit ─▶ effects (pods created, pods released) ─▶ next wake
    the clock                             ─┘             │
                                          conflict ──────┘ another client has written: read again, decide again

`start` begins a run, and `deciders` finds its decider. `attempts` observes and changes its pods, and `effects` applies its other
effects. `store` commits; `reconcile.record` has the write and its conflicts.

Crash windows. Before the commit, nothing has happened. Between the commit and its effects, the committed state determines which
pods must exist: after a restart, the operator creates missing pods (their names are locks) and releases unneeded ones. A commit
whose response was lost causes a conflict at the next write, which then finds the commit.

A run records a request of another run only once. It drops the ID of such a request when the sender has recorded the answer. A
second copy of the request can arrive after that: from an operator that worked on the sender before, or at the same time, or when
a delivery is retried. So the sender is read before its request is recorded, and after the version of the run that the commit
replaces was read:

    The sender still waits     The ID was not dropped before, so the run knows the ID, or has never recorded the request.
                               If another operator records the request in the meantime, the commit conflicts.
    The sender does not wait   The request was recorded, or nobody needs it anymore: it is dropped.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Final

import msgspec
import structlog

from perdure.api.json_values import mapping
from perdure.api.phases import workflow_of
from perdure.api.reasons import ConditionReason, EventReason
from perdure.controller.artifacts import NewerSetError
from perdure.controller.capacity import Refusal
from perdure.controller.errors import NotReadyError, NotYetError
from perdure.controller.payloads import add_owner_to_all, inlined
from perdure.controller.queue import RunKey
from perdure.controller.reconcile.newer_states import NewerStateError
from perdure.controller.reconcile.reconciler import Inbox, PendingRequest, Reconciler
from perdure.controller.reconcile.record import Status
from perdure.controller.recorded_state import DamagedStateError
from perdure.controller.runs.attempts.attempts import RunAttempts
from perdure.controller.runs.conditions import RunConditions, RunEventRecorder, lacks_worker
from perdure.controller.runs.deciders import Idle, RunDecider, RunDeciders
from perdure.controller.runs.effects.context import EffectContext
from perdure.controller.runs.effects.effects import Effects
from perdure.controller.runs.effects.relations import ChildOutcomes
from perdure.controller.runs.offers import WorkerOffers
from perdure.controller.runs.start import ENDS, MAX_UNRECORDED, RunStarter, UnrecordedStart, decides, may_wait
from perdure.controller.runs.status import Hindrances, StatusComposer, is_near_limit, refused_as_too_large
from perdure.controller.runs.store import NoRoomError, Origin, OutOfStepError, RunStore
from perdure.controller.services import Peers, Services
from perdure.controller.workers import next_poll_check, unserved
from perdure.controller.workflows.definitions import Definition
from perdure.engine import inputs
from perdure.engine.commands import Decider
from perdure.engine.events import AnyEvent
from perdure.engine.inputs import Answer
from perdure.engine.ledger import POLICY_NOT_FOUND
from perdure.engine.starts import ExternalReference
from perdure.engine.state import RunState
from perdure.engine.step import RunTransition, next_wake, only_waits, step
from perdure.engine.tasks import reclaim
from perdure.kube import client as kube
from perdure.kube.clock import now as wall_clock
from perdure.kube.clock import polling
from perdure.language.signals import unknown_signal
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import continuation_of, created_by, first_run_id, parent_of, reset_of
from perdure.runtime.operation_requests import payload_of

_READS: Final = 16
"""How many senders are read at the same time."""


class Run:
    """A WorkflowRun in this process. `advance` is called by one task at a time; everything else at any time."""

    def __init__(self, services: Services, peers: Peers, obj: kube.Object, wake: Callable[[], None]) -> None:
        """Create it without its state.

        Args:
            services: The shared services.
            peers: The other runs.
            obj: The object of the run.
            wake: Requests a call of `advance`.
        """
        meta, reset = obj["metadata"], reset_of(obj)
        ref = RunRef(
            namespace=meta["namespace"],
            name=meta["name"],
            uid=meta["uid"],
            workflow_id=obj["spec"].get("workflowId") or meta["name"],
            created_by=created_by(obj),
        )
        self.ref = ref
        self.key = RunKey(ref.namespace, ref.uid, ref.workflow_id)
        """The key of its reconciliation."""
        self.state: RunState | None = None
        """The state of the run, with everything recorded that must be; None before the run has started or was read."""
        self._start: UnrecordedStart | None = None
        """The start of the run, if the first decision must record it."""
        self._decider = RunDecider(decider=None)
        """The decider of the run, and the definition that it interprets."""
        self._decide_again = False
        """Whether the decider must run again, although no event was added."""
        self._commits_everything = False
        self._forgotten: list[inputs.RequestForgotten] = []
        self._try_again: datetime | None = None
        """When to retry a run that could not start, regardless of events."""
        self._libraries: frozenset[str] | None = None
        """The Workflows from which the definition of a run that could not start copies parts; None: not known."""
        self.waits_for_room = False
        """Whether the run has not started because its namespace has too many open runs, or this process too little memory."""
        self._released = False
        """Whether the objects of a deleted run were released."""
        self._services = services
        self._peers = peers
        self.inbox: Inbox[inputs.Request] = Inbox("the run")
        """The pending requests. The answer to a request follows once it is recorded."""
        self.workflow = workflow_of(obj["spec"])
        """Its Workflow or workflow type, for metrics."""
        self._events = RunEventRecorder(services.recorder, ref, self.workflow)
        self._composer = StatusComposer(first_run_id(obj), self._hindrances)
        self._store = RunStore(services.client, obj, ref, services.blobs, self._composer)
        self.record = self._store.record
        """The last version of the run that was written or read here."""
        self.attempts = RunAttempts(services, ref, self._store, reset, self._events, wake=wake)
        """The attempts in pods; it observes the run's pods."""
        self._effects = Effects(
            services.client, ref, reset, peers, services.policies, wake, self._events.create_refused
        )
        self.outcomes = ChildOutcomes(self._effects.context, self._effects.has_applied)
        """The outcomes of the children; it observes their runs."""
        self._conditions = RunConditions(ref, self._store, peers, self._events, self._composer)
        self._deciders = RunDeciders(services, ref, self.record, self.inbox)
        self._starter = RunStarter(services, self._effects.context, self._store, self.inbox, self._deciders)
        self._offers = WorkerOffers(services, self._effects.context, self.record, self.attempts)
        self._log = structlog.get_logger("perdure.run").bind(namespace=ref.namespace, run=ref.name)
        self.advance = Reconciler(self, self.record).advance
        """Reconcile the run; see there."""

    @property
    def unrecorded(self) -> Sequence[AnyEvent]:
        """The history of a run whose start is not recorded yet; empty for any other."""
        return self._start.transition.events if self._start is not None else ()

    @property
    def admitted(self) -> Collection[int]:
        """What may be offered to workers, by the ID of the event that scheduled it."""
        return self._offers.admitted

    @property
    def status_size(self) -> int:
        """Size of the status that this process has committed last, in bytes; 0 if it has committed none."""
        return self._store.size

    @property
    def near_limit(self) -> bool:
        """Whether the run is open, and its history or its status has reached half of its limit."""
        return self.state is not None and not self.state.closed and is_near_limit(self.state, self._store.size)

    @property
    def deleted(self) -> bool:
        """Whether the run was deleted."""
        return self.record.deleted

    @property
    def done(self) -> bool:
        """Whether no work is pending: the run is closed or deleted, and its pods are released."""
        if self.record.deleted:
            return self._released and self.attempts.settled and not self.inbox
        if self.state is None or not self.state.closed or self.state.has_pending_work:
            return False
        return self.attempts.settled and self.outcomes.settled and not self.inbox

    def is_idle(self, now: datetime) -> bool:
        """Whether the run only waits, and this process has nothing to do for it that is not recorded."""
        state = self.state
        if state is None or self._start is not None or self._decide_again or self.inbox or self._forgotten:
            return False
        settled = self.attempts.settled and self.outcomes.settled and not self._effects.are_due(state, now)
        return settled and not self.record.deleted and not self.record.outdated and only_waits(state, now)

    def waits_for_workflow(self, name: str) -> bool:
        """Whether this run cannot start without a Workflow."""
        reference = self.record.object["spec"].get("workflow") or {}
        if self.state is not None:
            return False
        referenced = str(reference.get("name", "")).removeprefix(f"{self.ref.namespace}/")
        return name == referenced or self._libraries is None or name in self._libraries

    @property
    def commits_everything(self) -> bool:
        """Whether to record the run after every reconciliation, because another process continues it.

        Then repeatable transitions are recorded, too: this process does not keep the run.
        """
        return self._commits_everything

    @commits_everything.setter
    def commits_everything(self, value: bool) -> None:
        if self._commits_everything and not value:
            self.state = None  # resumed as after a restart: workflow tasks of the process before are void
        self._commits_everything = value

    # Watch events

    def mark_deleted(self) -> None:
        """Record that the run was deleted. The garbage collector deletes its objects; `finalize` releases its pods."""
        self.record.deleted = True

    def update_policies(self) -> bool:
        """Process a change of a RetryPolicy or its circuit breaker; return whether it affects the run."""
        if self.state is None:
            return True
        self._decide_again |= self.state.task is not None and self.state.task.reason == POLICY_NOT_FOUND
        return self.attempts.blocked.recheck_circuits() or self._decide_again

    # Requests

    def withdraw_all_of(self, senders: Collection[str]) -> None:
        """Withdraw the requests of some runs (their UIDs), unless the requests were already recorded."""
        for each in list(self.inbox):
            if each.request.request_id.partition("/")[0] in senders:
                self.inbox.withdraw(each.request.request_id)

    def forget(self, request_id: str) -> None:
        """Record that the caller has recorded the answer, so that the run can drop the request."""
        self._forgotten.append(inputs.RequestForgotten(request_id=request_id))

    def record_start(self) -> bool:
        """Let the next reconciliation record the start of the run; return whether it was unrecorded."""
        if self._start is None:
            return False
        self._start.due = min(self._start.due, wall_clock())
        return True

    # Reconciliation

    async def reconcile(self, time: datetime) -> datetime | None:
        """Observe, decide, commit, and apply the effects; return when to call again, or None to wait for an event."""
        try:
            if self.state is None and not await self._load(time):
                wake = self._try_again
            else:
                wake = await self._advance(time)
            if self._start is not None:  # the run exists only in this process
                return wake
            if self.state is not None:
                await self._conditions.recovered(self.state, wall_clock())
            if not self.inbox:  # pending requests may refer to stored blobs
                await self._store.blobs.tidy(self.record.status)
        except Exception as error:
            self.attempts.held.recheck()  # what was observed is not committed
            if isinstance(error, NewerSetError):
                await self._conditions.wait_for_newer(str(error), wall_clock())
            raise
        return wake

    async def _advance(self, now: datetime) -> datetime | None:
        """Decide and commit; then offer the tasks of the committed state to workers, and apply its effects."""
        assert self.state is not None
        state, more = await self._decide_and_commit(self.state, now)
        if more:
            return now
        if self._services.shards.holds(self.ref.namespace, self.ref.workflow_id):
            await self._offers.admit(state, now)
        self._services.workers.follow(self)
        if self._start is not None:
            return min(filter(None, (self._start.due, next_wake(state, now))))
        pods = await self.attempts.definitions.in_pods(state)
        await self.attempts.apply(pods, now)
        if self.attempts.blocked.unreported(pods, self.attempts.held.pods):
            return now
        if self._effects.are_due(state, now):
            await self._effects.apply(state, self.record.latest(), now, self.record.confirm)
        next_check = next_poll_check(state, now)
        await self._conditions.report_blocked(state, now, offers=next_check is not None)
        wakes = (
            next_wake(state, now),
            self.attempts.next_wake(pods, now),
            self._effects.next_try(state),
            self._offers.next_try(state, now),
            next_check if polling.get() else None,
        )
        return min(filter(None, wakes), default=None)

    # The start, and resumption after a restart

    async def _load(self, now: datetime) -> bool:
        """Resume from the recorded state, or start the run; return whether the run can proceed."""
        self._start = self._try_again = None
        try:
            state = self._store.state()
            if state is None:
                return await self._begin(now)
            if state.activities or state.children or state.externals:
                # A watch may lag, but pods must be created only for the current state.
                await self.read_again()
                if self.record.deleted:
                    return False
                state = self._store.state()
                if state is None:
                    return await self._begin(now)
            if not state.closed and state.code is None:
                self._decide_by(await self._deciders.resume(state))
        except NewerStateError as error:
            self._try_again = await self._conditions.report_newer(str(error), now)
            return False
        except NotReadyError as error:  # the definition of the run is lost
            await self._conditions.wait(error.reason, error.message, now)
            self._try_again = error.until
            return False
        except DamagedStateError as error:
            await self._conditions.wait(ConditionReason.STATE_DAMAGED, str(error), now)
            self.inbox.refuse_all(ConditionReason.STATE_DAMAGED, str(error))
            return False
        if not self._commits_everything:  # only the owner of a guest knows which tasks it has dispatched
            state = reclaim(state, self._services.workers.epoch)
        if any(not activity.by_worker for activity in state.activities.values()):
            await self.attempts.recover(await self.attempts.definitions.in_pods(state))
        self._recheck_others()
        self.state = state
        return True

    async def _begin(self, now: datetime) -> bool:
        """Start the run; return whether it could be started.

        Raises:
            NotYetError: The definition of the run is being compiled.
        """
        refusal = self._refusal()
        self.waits_for_room = refusal is not None
        if refusal is not None:
            await self._conditions.wait(refusal.reason, f"{refusal.message}; the run starts when there is room", now)
            self._try_again = self._peers.capacity.wait(self.key, refusal, now)
            return False
        with self._peers.capacity.start(self.key):
            return await self._begin_now(now)

    def _refusal(self) -> Refusal | None:
        """Why the run cannot start now; None if it can, or if a request ends it anyway."""
        obj = self.record.object
        goes_on = parent_of(obj) is not None or continuation_of(obj) is not None or reset_of(obj) is not None
        if goes_on or self.inbox.has(*ENDS) or not decides(self._services.shards, self.ref):
            return None
        return self._peers.capacity.refusal(self.ref.namespace)

    async def _begin_now(self, now: datetime) -> bool:
        await add_owner_to_all(self._services.client, self.record.object)
        await self._store.artifacts.hold(msgspec.json.encode(self.record.object))
        self._libraries = None  # before they are read: a change while they are read counts
        try:
            begun = await self._starter.begin(now)
        except NotReadyError as error:
            self._libraries = error.libraries
            await self._conditions.wait(error.reason, error.message, now)
            self._try_again = error.until
            return False
        except NotYetError as error:
            await self._conditions.wait_for_definition(error, now)
        self._libraries = frozenset()
        if not (begun.requests or decides(self._services.shards, self.ref)):
            return False  # requests may end the run here, but only its owner opens it
        self._decide_by(begun)
        transition = begun.transition
        if not (begun.requests or self._commits_everything) and may_wait(begun, self.record, self._services.workers):
            self._start = UnrecordedStart(transition, now + MAX_UNRECORDED)
        else:
            transition = await self._commit(None, transition, now, origin=begun.origin)
        self.state = transition.state
        self._answer(begun.requests, transition)
        if begun.origin is not None:
            self._recheck_others()
        return True

    def _decide_by(self, decider: RunDecider) -> None:
        self._decider = RunDecider(decider=decider.decider, definition=decider.definition)
        self.attempts.define(decider.definition)
        self._composer.define(self._decider)

    # Decisions, and the commit

    async def _decide_and_commit(self, state: RunState, now: datetime) -> tuple[RunState, bool]:
        """Step the engine with the inputs, and commit the transition; return the new state, and whether to decide again."""
        forgotten, requests = list(self._forgotten), await next_requests(self.inbox, self._effects.context)
        task_started = state.code is not None and state.code.task_started
        outcomes = [] if task_started and not prolongs_task(requests) else await self.outcomes.gather(state)
        observed = [*forgotten, *outcomes, *await self._observed(state, now), *(each.request for each in requests)]
        if state.closed and not observed:
            return state, False
        recorded = self.record.status
        code = state.code is not None
        readable = await inlined(observed, self.ref.namespace, self._services.blobs, self._services.workers, code=code)
        if readable.refused is not None:
            refused = next(each for each in requests if each.request is readable.refused)
            self.inbox.refuse(refused, ConditionReason.PAYLOAD_TOO_LARGE, readable.reason)
            return state, True
        complete = await self.attempts.definitions.with_policies(readable.values, state)
        try:
            transition = await self._step(state, complete, now, requests)
        except NoRoomError:
            return state, True
        except OutOfStepError:
            self.state = None
            raise
        except Exception as error:
            if self.record.status is not recorded:
                self.state = None  # it is already recorded: deciding from the previous state would record it twice
                raise
            if self.inbox.refuse_failing(requests, error):
                return state, True
            if not isinstance(error, kube.RequestError):
                self.state = None  # uncommitted changes in memory may be the cause: continue from the recorded state
            raise
        self.inbox.mark_recorded(requests)
        self.state = transition.state
        self.attempts.retire(transition)
        self.outcomes.committed(len(outcomes))
        del self._forgotten[: len(forgotten)]
        self._decide_again = False
        self._answer(requests, transition)
        after = transition.state.code
        has_more = not (after is not None and after.task_started) and not self.outcomes.settled
        return transition.state, transition.more or has_more or self.inbox.one_by_one

    async def _observed(self, state: RunState, now: datetime) -> list[inputs.RunInput]:
        """The observations of this process as inputs: pods, and the need to decide again."""
        observed: list[inputs.RunInput] = [inputs.DecideAgain()] if self._decide_again else []
        if not state.closed:
            observed += self._offers.waiting(state)
            observed += await self.attempts.gather(await self.attempts.definitions.in_pods(state), now)
        return observed

    async def _step(
        self,
        state: RunState,
        observed: Sequence[inputs.RunInput],
        now: datetime,
        requests: Sequence[PendingRequest[inputs.Request]],
    ) -> RunTransition:
        """Step the engine, and commit the transition if necessary, together with an unrecorded start of the run."""
        transition = step(state, observed, now, self._next_decider, self._services.policies.of(self.ref.namespace))
        if self._start is not None:
            transition = self._start.followed_by(transition, now)
        if transition.durable or (self._commits_everything and transition.state != state):
            if self._start is not None and not decides(self._services.shards, self.ref):
                self.state = None
                raise kube.ConflictError(409, "Conflict", "another operator decides whether the run starts")
            before = None if self._start is not None else state
            transition = await self._commit(before, transition, now, requests=requests)
            self._start = None
        return transition

    @property
    def _next_decider(self) -> Decider:
        """The decider for the next step. A closed run needs no decisions."""
        return self._decider.decider or Idle()

    async def _commit(
        self,
        state: RunState | None,
        transition: RunTransition,
        now: datetime,
        *,
        origin: Origin | None = None,
        requests: Sequence[PendingRequest[inputs.Request]] = (),
    ) -> RunTransition:
        """Record a transition with one write of the status; then report it with Events, conditions, and metrics.

        Args:
            state: The state before it; None for a run that starts.
            transition: The result of the engine's step.
            now: The time.
            origin: The history that the run starts with, if it continues that of another run.
            requests: The requests in the transition.

        Returns:
            The recorded transition, or the termination of the run if the status would become too large.

        Raises:
            ConflictError: Another client has written.
            NoRoomError: The requests do not fit, and nothing was recorded. Several requests are processed one at a time from now
                on, because the history of each commit is sealed before the next one; a single request was refused.
        """
        before = origin.status if origin else self.record.status
        heavy = carriers(requests)
        try:
            committed = await self._store.commit(
                state, transition, now, self._next_decider, origin, may_end=len(requests) <= 1 and not heavy
            )
        except NoRoomError:
            if len(requests) > 1:
                self.inbox.one_by_one = True
                raise
            message = (
                "The status of the run has no room for this payload. Store it elsewhere and pass a reference to it"
            )
            self.inbox.refuse(heavy[-1], ConditionReason.PAYLOAD_TOO_LARGE, message)
            raise
        transition = committed.transition
        if too_large := committed.too_large:
            answers = {each.request.request_id: answer_if_terminated(each.request, too_large) for each in requests}
            transition = replace(transition, answers=answers)
        self._peers.publish(self.record.latest())
        try:
            if committed.truncated:
                self._events.warn(EventReason.HISTORY_TRUNCATED, committed.truncated, "Seal")
            self._conditions.report_missing_workers(before)
            self._events.committed(state, transition, self.record.status["progress"], self._decider.definition)
        except Exception:  # noqa: BLE001 - recorded events stand, even if they cannot be announced
            self._log.exception("Could not record Events for a commit")
        return transition

    def _hindrances(self, status: Status, state: RunState, now: datetime) -> Hindrances:
        """What keeps the run from continuing, although it has nothing to record."""
        reported = bool(lacks_worker(status))
        return Hindrances(
            unserved=unserved(state, now, self._services.workers, self.ref.namespace, reported=reported),
            turn=self._offers.turn,
            refused=self._effects.refused(state),
        )

    def _answer(self, requests: Sequence[PendingRequest[inputs.Request]], transition: RunTransition) -> None:
        definition = self._decider.definition
        self.inbox.answer(
            requests, transition.answers, lambda request, answer: with_warning(request, answer, self.ref, definition)
        )

    # Conflicts, failures, and deletion

    async def read_again(self) -> None:
        """Read the run, and observe everything again if another client has written."""
        if await self.record.read_again():
            self.state = None
            self.attempts.held.recheck()
            self._recheck_others()

    def _recheck_others(self) -> None:
        self._effects.recheck()
        self.outcomes.recheck()

    def full(self, error: kube.TooLargeError) -> None:
        """Report that the spec leaves no room for the status."""
        message = refused_as_too_large(error.message)
        self._events.warn(EventReason.PAYLOAD_TOO_LARGE, message, "Commit")
        self.inbox.refuse_all(ConditionReason.PAYLOAD_TOO_LARGE, message)

    async def broken(self, error: Exception) -> None:
        """Report that the operator cannot process the run, and start over from the recorded state."""
        self.state = None
        message = f"the operator cannot process the run: {type(error).__name__}: {error}; it retries with backoff"
        self.inbox.refuse_all(ConditionReason.INTERNAL_ERROR, message)
        if not self.record.status.get("completionTime"):
            with suppress(kube.RequestError):
                await self._conditions.wait(ConditionReason.INTERNAL_ERROR, message, wall_clock())

    async def finalize(self) -> None:
        """Answer the pending requests of a deleted run, and release its pods."""
        self.inbox.refuse_all(ConditionReason.TARGET_NOT_FOUND, f"WorkflowRun `{self.ref.name}` was deleted")
        await self.attempts.finalize()
        self._services.workers.follow(self)
        self._released = True


# Requests


async def next_requests(inbox: Inbox[inputs.Request], context: EffectContext) -> list[PendingRequest[inputs.Request]]:
    """Return the requests that the next step processes, and drop those whose senders do not wait for the answer.

    The step must drop only IDs that could be dropped before this call: a sender may record an answer during the call.

    Raises:
        RequestError: The API server did not respond.
    """
    requests = inbox.next()
    senders = list(dict.fromkeys(sender.run_id for each in requests if (sender := _sender(each.request))))
    if not senders:
        return requests
    at_once = asyncio.Semaphore(_READS)

    async def read(run_id: str) -> Collection[str]:
        async with at_once:
            return await _awaited(run_id, context)

    awaited = dict(zip(senders, await asyncio.gather(*map(read, senders)), strict=True))
    current = []
    for each in requests:
        sender = _sender(each.request)
        if sender is None or str(sender.initiated_event_id) in awaited[sender.run_id]:
            current.append(each)
        else:
            inbox.drop(each)
    return current


def _sender(request: inputs.Request) -> ExternalReference | None:
    """The run that sends a request, and the event that initiated it; None for requests of others."""
    return request.external if isinstance(request, inputs.SignalRequested | inputs.CancelRequested) else None


async def _awaited(run_id: str, context: EffectContext) -> Collection[str]:
    """The initiated event IDs of the requests to other runs whose answers a run waits for; none if it was deleted."""
    entry = context.peers.directory.get(run_id)
    if entry is None:
        return ()
    try:
        run = await context.client.get(context.url(entry.name))
    except kube.NotFoundError:
        return ()
    if run["metadata"]["uid"] != run_id:
        return ()
    return mapping(mapping(mapping(run.get("status")).get("state")).get("externals"))


def carriers(requests: Sequence[PendingRequest[inputs.Request]]) -> list[PendingRequest[inputs.Request]]:
    """The requests with a payload."""
    return [each for each in requests if payload_of(each.request) is not None]


def prolongs_task(requests: Sequence[PendingRequest[inputs.Request]]) -> bool:
    """Whether a worker prolongs its workflow task, so that the commit that ends this task begins another one."""
    return any(isinstance(each.request, inputs.TaskCompleted) and each.request.force_new_task for each in requests)


def with_warning(request: inputs.Request, answer: Answer, run: RunRef, definition: Definition | None) -> Answer:
    """The answer of a run to a request, with a warning for a signal that its workflow never waits for."""
    if definition is None or not isinstance(request, inputs.SignalRequested) or not answer.ok:
        return answer
    if answer.reason not in {"", ConditionReason.DEFERRED}:
        return answer
    unknown = unknown_signal(definition.program, request.signal_name)
    if not unknown:
        return answer
    reason = ConditionReason.SIGNAL_NOT_AWAITED.value
    message = f"`{run.name}` keeps the signal, but {unknown}"
    return Answer(ok=True, reason=reason, message=f"{message}; {answer.message}" if answer.message else message)


def answer_if_terminated(request: inputs.Request, reason: str) -> Answer:
    """The answer to a request that made the run too large, so that the run was terminated."""
    if isinstance(request, inputs.TerminateRequested):
        return Answer(ok=True)
    return Answer(ok=False, reason=ConditionReason.PAYLOAD_TOO_LARGE.value, message=reason)
