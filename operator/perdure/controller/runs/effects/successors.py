"""Create the run that continues or retries a closed run."""

from perdure.controller.payloads.store import add_owner_to_all
from perdure.controller.reconcile.refusals import LONGEST_MESSAGE
from perdure.controller.runs.effects.context import EffectContext
from perdure.engine import history, inputs
from perdure.engine.effects import StartSuccessor
from perdure.engine.state import RunState
from perdure.kube import client as kube
from perdure.runtime.chains import is_successor, successor_run


async def start(context: EffectContext, state: RunState, run: kube.Object) -> None:
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
