"""The command that schedules an activity."""

from collections.abc import Mapping
from datetime import timedelta

from perdure.api.kinds.steps import ActivityCall
from perdure.api.kinds.workflow import Activity
from perdure.engine import commands as cmd
from perdure.language.program import Program, retry_policy
from perdure.language.step_paths import Path
from perdure.language.timeouts import OF_ACTIVITY


def schedule_activity(
    program: Program, call: ActivityCall, path: Path, value: object, evaluated: Mapping[str, timedelta]
) -> cmd.ScheduleActivityTask:
    """Build the command for an activity, with the overrides of the call.

    Args:
        program: The program that defines the activity.
        call: The call of a step or of its compensation.
        path: Path of the task or compensation: it becomes the ID of the activity.
        value: The input.
        evaluated: The values of timeouts that are expressions, by Python field name.
    """
    definition = program.activities[call.name]
    limits = {name: evaluated.get(name) or _literal(call, name) or _literal(definition, name) for name in OF_ACTIVITY}
    return cmd.ScheduleActivityTask(
        activity_id=path.text,
        activity_type=(definition.worker.type if definition.worker else None) or call.name,
        task_queue=definition.worker.task_queue if definition.worker else "",
        input=value,
        schedule_to_close_timeout=limits["schedule_to_close_timeout"],
        schedule_to_start_timeout=limits["schedule_to_start_timeout"],
        start_to_close_timeout=limits["start_to_close_timeout"],
        heartbeat_timeout=limits["heartbeat_timeout"],
        retry_policy=retry_policy(call.retry_policy or definition.retry_policy),
    )


def _literal(given: ActivityCall | Activity, name: str) -> timedelta | None:
    value = getattr(given, name)
    return value if isinstance(value, timedelta) else None
