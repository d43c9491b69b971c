"""Create the DeadLetters of a run."""

import structlog

from perdure.api.kinds.artifactset import HolderKind
from perdure.controller.artifacts.holders import hold_for
from perdure.controller.runs.effects.context import EffectContext
from perdure.controller.runs.store import past_of
from perdure.engine import events as ev
from perdure.engine import history, inputs
from perdure.engine.effects import WriteDeadLetter
from perdure.kube import client as kube
from perdure.observe import metrics
from perdure.runtime.deadletters import dead_letter, is_same_dead_letter

_NAMES_TRIED = 10
_log = structlog.get_logger("perdure.effects.letters")


async def write(context: EffectContext, marker: ev.MarkerRecorded, run: kube.Object) -> None:
    """Create the DeadLetter that a marker requires.

    Args:
        context: The context of the run.
        marker: The recorded marker.
        run: The object of the run, as committed.

    Raises:
        RequestError: The Kubernetes API request failed. Call again to retry.
    """
    definition = run["status"].get("definition") or run["spec"].get("inline") or {}
    scheduled = await _scheduled(context, marker, run)
    activities = definition.get("activities") or ()
    for number in range(_NAMES_TRIED):
        if await _create(context, dead_letter(context.run, marker, scheduled, activities, number)):
            break
    else:
        where = {"namespace": context.run.namespace, "run": context.run.name, "event_id": marker.event_id}
        _log.error("Could not create the DeadLetter: all its names are taken", **where)
    context.pending.enqueue(inputs.EffectDone(effect=WriteDeadLetter(marker.event_id)))


async def _create(context: EffectContext, body: kube.Object) -> bool:
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


async def _scheduled(
    context: EffectContext, marker: ev.MarkerRecorded, run: kube.Object
) -> ev.ActivityTaskScheduled | None:
    """Find the event that scheduled the activity of a marker, in the status or in a segment."""
    number = (marker.details or {}).get("scheduledEventId", 0)
    found = [event for event in run["status"]["history"]["events"] if event["eventId"] == number]
    if not found:
        found = [event for event in (await past_of(context.client, run)).events if event["eventId"] == number]
    event = history.decode_events(found[:1])[0] if found else None
    return event if isinstance(event, ev.ActivityTaskScheduled) else None
