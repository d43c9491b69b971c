"""Apply each effect of a run once, and retry effects that the API server rejects."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, assert_never

import structlog

from perdure.api.kinds.artifactset import HolderKind
from perdure.api.kinds.workflowrun import definition_of
from perdure.api.names import child_name
from perdure.controller.artifacts import NewerSetError, hold_for
from perdure.controller.payloads import add_owner_to_all
from perdure.controller.reconcile.refusals import LONGEST_MESSAGE, Refusals, is_temporary
from perdure.controller.retry_policies import CHECK_AGAIN, Policies
from perdure.controller.runs.effects import nexus_callbacks, relations
from perdure.controller.runs.effects.context import EffectContext, PendingInputs
from perdure.controller.runs.store import past_of
from perdure.controller.services import Peers
from perdure.controller.workflows.revisions import Revisions
from perdure.engine import effects as fx
from perdure.engine import events as ev
from perdure.engine import history, inputs
from perdure.engine.effects import Effect, StartSuccessor, WriteDeadLetter, effects
from perdure.engine.state import RunState
from perdure.engine.versioning import UNVERSIONED
from perdure.kube import client as kube
from perdure.observe import metrics
from perdure.runtime.attempts import RunRef
from perdure.runtime.chains import ResetOrigin, depth_of, is_successor, successor_run
from perdure.runtime.circuits import holder
from perdure.runtime.deadletters import dead_letter, is_same_dead_letter
from perdure.runtime.revisions import Reference

_SOON_SECONDS = 0.2
"""The delay before a retry of an effect whose target run is changing."""


class Effects:
    """The effects of one run, and the ones that were applied."""

    def __init__(
        self,
        client: kube.Client,
        run: RunRef,
        reset: ResetOrigin | None,
        peers: Peers,
        policies: Policies,
        wake: Callable[[], None],
        refused: Callable[[str], None],
    ) -> None:
        """Create it without applied effects.

        Args:
            client: The client of the API server.
            run: The run.
            reset: The origin of the run, if a reset created it.
            peers: The other runs.
            policies: The RetryPolicies, whose circuit breakers get reports of attempts.
            wake: Requests another reconciliation of the run.
            refused: Called once for each object that the API server rejects, with the reason.
        """
        self.context = EffectContext(
            client=client,
            run=run,
            reset=reset,
            peers=peers,
            pending=PendingInputs(wake),
            retry_soon=self._retry_soon,
        )
        self._policies = policies
        self._wake = wake
        self._applied: set[Effect] = set()
        self._refusals: Refusals[Effect] = Refusals(refused)

    # Pending effects

    def are_due(self, state: RunState, now: datetime) -> bool:
        """Whether the state has unapplied effects that may be tried now."""
        return any(not self._waits(effect, now) for effect in self._left(state))

    def refused(self, state: RunState) -> str:
        """Why the API server rejects an object of the run; empty if it rejects none."""
        return self._refusals.message(self._left(state)) if self._refusals else ""

    def next_try(self, state: RunState) -> datetime | None:
        """When to retry a rejected effect; None if none was rejected."""
        return self._refusals.next_try(self._left(state)) if self._refusals else None

    def has_applied(self, effect: Effect) -> bool:
        """Whether this process has applied an effect since it last read the run."""
        return effect in self._applied

    def recheck(self) -> None:
        """Apply all effects again, because the known state may be stale."""
        self._applied.clear()

    def _left(self, state: RunState) -> set[Effect]:
        return set(effects(state)) - self._applied

    def _waits(self, effect: Effect, now: datetime) -> bool:
        """Whether it is too early for an effect. An abandoned child must start before it is closed."""
        if isinstance(effect, fx.CloseChild) and self._refusals.waits(fx.StartChild(effect.initiated_event_id), now):
            return True
        return self._refusals.waits(effect, now)

    # Applying

    async def apply(
        self, state: RunState, run: kube.Object, now: datetime, confirm: Callable[[], Awaitable[None]]
    ) -> None:
        """Apply the effects of the committed state. Temporarily rejected effects do not delay the others.

        Args:
            state: The committed state.
            run: The object of the run, as committed.
            now: The time.
            confirm: Called before each effect, because the one before it may have taken long: raises an error if the state is
                no longer current.

        Raises:
            ConflictError: The state is not current.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        wanted = effects(state)
        closing = {
            each.initiated_event_id for each in wanted if isinstance(each, fx.CloseChild) and each not in self._applied
        }
        if closing:
            await relations.find_children(self.context, closing)
        for effect in wanted:
            if effect not in self._applied and not self._waits(effect, now):
                await confirm()
                await self._apply(effect, state, run, now)

    async def _apply(self, effect: Effect, state: RunState, run: kube.Object, now: datetime) -> None:
        match effect:
            case fx.ReportAttempt():
                who = holder(self.context.run, effect.key)
                reported = await self._policies.report(self.context.run.namespace, who, state.reports[effect.key])
                self._applied.add(effect)
                if reported:
                    self.context.pending.enqueue(inputs.EffectDone(effect=effect))
                else:
                    self._retry_soon(effect, CHECK_AGAIN.total_seconds())
            case fx.StartChild(number):
                child = state.children[str(number)]
                priority = state.code.priority if state.code is not None else None
                name = f"the child `{child_name(self.context.run.name, number)}`"
                versioning = state.code.versioning if state.code is not None else UNVERSIONED
                creation = relations.start_child(self.context, child, depth_of(run) + 1, priority, versioning)
                await self._unless_refused(effect, name, now, creation)
            case fx.CloseChild(number):
                self._note(effect, relations.close_child(self.context, state.children[str(number)]))
            case fx.RequestExternal(number):
                self._note(effect, relations.deliver(self.context, state.externals[str(number)], state))
            case fx.WriteDeadLetter(number):
                creation = _write_dead_letter(self.context, state.markers[str(number)], run)
                await self._unless_refused(effect, "a DeadLetter", now, creation)
            case fx.CompleteOperation(key):
                creation = nexus_callbacks.complete(self.context, key, state, run)
                await self._unless_refused(effect, "the Nexus operation of another run", now, creation)
            case fx.StartSuccessor():
                creation = _start_successor(self.context, state, run)
                await self._unless_refused(effect, "the run that continues this one", now, creation)
            case _:
                assert_never(effect)

    async def _unless_refused(self, effect: Effect, name: str, now: datetime, creation: Awaitable[None]) -> None:
        """Create an object, and record a temporary rejection."""
        try:
            await creation
        except NewerSetError as error:
            self._refusals.note(effect, f"{name} waits for its artifacts: {error}", now)
        except kube.ApiError as error:
            if not is_temporary(error):
                raise
            message = f"the API server refuses to create {name}: {error.message[:LONGEST_MESSAGE]}"
            self._refusals.note(effect, message, now)
        else:
            self._refusals.clear(effect)
            self._applied.add(effect)

    def _note(self, effect: Effect, applied: bool) -> None:
        if applied:
            self._applied.add(effect)

    def _retry_soon(self, effect: Effect, seconds: float = 0.0) -> None:
        def again() -> None:
            self._applied.discard(effect)
            self._wake()

        asyncio.get_running_loop().call_later(max(seconds, _SOON_SECONDS), again)


async def _start_successor(context: EffectContext, state: RunState, run: kube.Object) -> None:
    """Create the next run.

    Args:
        context: The context of the closed run.
        state: The committed state of the closed run.
        run: The object of the closed run, as committed.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    events = history.decode_events(run["status"]["history"]["events"][-1:])
    body = successor_run(run, state, events[-1])
    name, refused = body["metadata"]["name"], ""
    try:
        # Recorded immediately: until a watch event arrives, the workflow ID would look free.
        created = await context.client.create(context.url(), body)
        context.peers.publish(created)
        await add_owner_to_all(context.client, created)
    except kube.AlreadyExistsError:
        found = await context.client.get(context.url(name))
        if not is_successor(found, context.run.uid):
            refused = f"WorkflowRun `{name}` already exists and does not continue this run"
        else:
            await add_owner_to_all(context.client, found)
        context.peers.publish(found)
    except (kube.InvalidError, kube.TooLargeError) as error:
        refused = f"the API server refuses WorkflowRun `{name}`: {error.message[:LONGEST_MESSAGE]}"
    context.pending.enqueue(inputs.EffectDone(effect=StartSuccessor(), refused=refused))


_NAMES_TRIED = 10
_log = structlog.get_logger("perdure.effects.letters")


async def _write_dead_letter(context: EffectContext, marker: ev.MarkerRecorded, run: kube.Object) -> None:
    """Create the DeadLetter that a marker requires.

    Args:
        context: The context of the run.
        marker: The recorded marker.
        run: The object of the run, as committed.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    scheduled = await _scheduled_activity(context, marker, run)
    activities = (await _definition(context, run)).get("activities") or ()
    for number in range(_NAMES_TRIED):
        if await _create_dead_letter(context, dead_letter(context.run, marker, scheduled, activities, number)):
            break
    else:
        where = {"namespace": context.run.namespace, "run": context.run.name, "event_id": marker.event_id}
        _log.error("Could not create the DeadLetter: all its names are taken", **where)
    context.pending.enqueue(inputs.EffectDone(effect=WriteDeadLetter(marker.event_id)))


async def _definition(context: EffectContext, run: kube.Object) -> dict[str, Any]:
    """The definition of a run, from its WorkflowRevision if it refers to one.

    Raises:
        NotReadyError: The WorkflowRevision was deleted.
        NewerStateError: A newer version has stored it.
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    reference = Reference.of(run["status"])
    if reference is None:
        return definition_of(run)
    return (await Revisions(context.client).read(context.run.namespace, reference)).definition


async def _create_dead_letter(context: EffectContext, body: kube.Object) -> bool:
    """Create a DeadLetter; return whether it exists now, or False if another object has its name."""
    url = kube.path(kube.PERDURE, context.run.namespace, "deadletters")
    try:
        letter = await context.client.create(url, body)
        metrics.DEAD_LETTERS.inc()
    except kube.AlreadyExistsError:
        letter = await context.client.get(f"{url}/{body['metadata']['name']}")
        if not is_same_dead_letter(letter, body):
            return False
    await hold_for(context.client, HolderKind.DEAD_LETTER, letter)
    return True


async def _scheduled_activity(
    context: EffectContext, marker: ev.MarkerRecorded, run: kube.Object
) -> ev.ActivityTaskScheduled | None:
    """Find the event that scheduled the activity of a marker, in the status or in a segment."""
    number = (marker.details or {}).get("scheduledEventId", 0)
    found = [event for event in run["status"]["history"]["events"] if event["eventId"] == number]
    if not found:
        found = [event for event in (await past_of(context.client, run)).events if event["eventId"] == number]
    event = history.decode_events(found[:1])[0] if found else None
    return event if isinstance(event, ev.ActivityTaskScheduled) else None
