"""The offers of a run to workers, and their task queues."""

from datetime import datetime

from perdure.controller.workers import Followed
from perdure.engine.state import RunState
from perdure.frontend.deployments.versions import Versions, queue_of
from perdure.frontend.matching import priorities
from perdure.frontend.matching.offers import Destination
from perdure.frontend.matching.queues import Kind, Offer, QueueName
from perdure.frontend.runs.first_tasks import FirstTasks


def offers_of(
    run: Followed, state: RunState, time: datetime, versions: Versions, first_tasks: FirstTasks
) -> dict[Offer, Destination]:
    """The available workflow task and activities of a run, with their task queues."""
    namespace, run_id = run.ref.namespace, run.ref.uid
    offers: dict[Offer, Destination] = {}
    task = state.offered_task()
    if state.code is not None and task is not None and not first_tasks.is_reserved(namespace, run.ref.name):
        version = versions.of_task(namespace, state)
        queue = queue_of(QueueName(namespace, Kind.WORKFLOW, state.code.task_queue), version)
        sticky = task.sticky_queue if version == state.code.versioning.version else ""
        rank = priorities.rank(state.code.priority)
        offers[Offer(run_id, task.scheduled_event_id, task.attempt, rank=rank)] = Destination(queue, sticky)
    inherited = state.code.priority if state.code is not None else None
    queues: dict[str, QueueName] = {}  # shared by many activities, because each lookup checks all deployments
    for activity in state.offered_activities(time):
        rank = priorities.rank(inherited, activity.priority)
        offer = Offer(run_id, activity.scheduled_event_id, activity.attempt, rank=rank)
        if activity.task_queue not in queues:
            queue = QueueName(namespace, Kind.ACTIVITY, activity.task_queue)
            queues[activity.task_queue] = queue_of(queue, versions.of_activity(namespace, state, activity))
        offers[offer] = Destination(queues[activity.task_queue])
    return offers
