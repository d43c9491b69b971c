"""The current state of a run's attempts, from its pods, Leases, Events, and children. Pure.

The status of a run records a started pod or a heartbeat only with the next commit; users want to see it now.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pydantic

from perdure.api.kinds.conditions import find_condition, read_conditions
from perdure.api.kinds.workflow import Activity
from perdure.api.labels import PARENT_RUN_ID_LABEL, RUN_ID_LABEL
from perdure.api.reasons import ConditionReason, ConditionStatus, ConditionType, EventReason
from perdure.api.times import read_time
from perdure.runtime.chains import parent_of
from perdure.runtime.leases import heartbeat_details
from perdure.runtime.pods.builder import main_container_name
from perdure.runtime.pods.groups import ContainerGroup
from perdure.runtime.pods.status import PodStatus
from perdure.runtime.pods.waiting import waiting_reason
from perdure.view.openings import ChildSight, Seen, Sight

Object = Mapping[str, Any]


def selector(run: Object) -> str:
    """Return the label selector of a run's pods and Leases."""
    return f"{RUN_ID_LABEL}={run['metadata']['uid']}"


def refusals(run: Object) -> str:
    """Return the field selector of the Events about pods of a run that could not be created."""
    return f"involvedObject.uid={run['metadata']['uid']},reason={EventReason.POD_REFUSED}"


def children_selector(run: Object) -> str:
    """Return the label selector of a run's children."""
    return f"{PARENT_RUN_ID_LABEL}={run['metadata']['uid']}"


def see(
    run: Object,
    pods: Iterable[Object],
    leases: Iterable[Object],
    events: Iterable[Object] = (),
    children: Iterable[Object] = (),
) -> Seen:
    """Read the state of a run's attempts and children from its objects.

    Args:
        run: The WorkflowRun.
        pods: Its pods.
        leases: Its Leases; empty without permission to read them.
        events: The Events about refused pods; empty without permission to read them.
        children: Its children, with the later runs of their chains.

    Returns:
        The current state.
    """
    by_name = {pod["metadata"]["name"]: dict(pod) for pod in pods}
    beats = {lease["metadata"]["name"]: dict(lease) for lease in leases}
    refused = {(event.get("related") or {}).get("name"): str(event.get("message") or "") for event in events}
    definitions = _activities(run)
    sights = {}
    for entry in (run.get("status") or {}).get("pendingActivities") or []:
        name = entry.get("pod")
        if name in by_name:
            sights[name] = _sight(by_name[name], beats.get(name, {}), definitions.get(entry.get("activity")))
        elif name in refused:
            sights[name] = Sight(waits_for=refused[name])
    staying = frozenset(name for name, pod in by_name.items() if not pod["metadata"].get("deletionTimestamp"))
    return Seen(pods=staying, sights=sights, children=_children(run, children))


def _children(run: Object, children: Iterable[Object]) -> dict[int, ChildSight]:
    """Return the newest run of each child's chain."""
    found: dict[int, ChildSight] = {}
    for child in sorted(children, key=_age):
        tie = parent_of(dict(child))
        if tie is not None and tie.run_id == run["metadata"]["uid"]:
            status = child.get("status") or {}
            found[tie.initiated_event_id] = ChildSight(
                name=child["metadata"]["name"],
                phase=str(status.get("phase") or "Pending"),
                progress=str(status.get("progress") or ""),
                waits_for=_hindrance(status),
            )
    return found


def _hindrance(status: Object) -> str | None:
    """Return why a run cannot continue, according to its condition; None if it can."""
    condition = find_condition(read_conditions(status), ConditionType.SUCCEEDED)
    if (
        condition is None
        or condition.status is not ConditionStatus.UNKNOWN
        or condition.reason == ConditionReason.RUNNING
    ):
        return None
    return condition.message


def _age(run: Object) -> tuple[str, bool, str]:
    """Return a sort key by age: of two runs created in the same second, the open run is newer."""
    status = run.get("status") or {}
    return (
        str(run["metadata"].get("creationTimestamp")),
        not status.get("completionTime"),
        str(status.get("startTime")),
    )


def _sight(pod: dict[str, Any], lease: dict[str, Any], definition: Activity | None) -> Sight:
    status = PodStatus.of(pod)
    beat = read_time((lease.get("spec") or {}).get("renewTime"))
    details = heartbeat_details(lease)
    if definition is None:
        return Sight(heartbeat=beat, details=details)
    group = ContainerGroup.of(pod, main_container_name(definition))
    ended = group.ended(status)
    return Sight(
        started=group.running_since(status) or (ended.started if ended else None),
        containers=group.at_work(status) if len((pod.get("spec") or {}).get("containers") or ()) > 1 else (),
        ended=ended is not None or status.phase in {"Succeeded", "Failed"},
        waits_for=waiting_reason(pod, definition),
        heartbeat=beat,
        details=details,
    )


def _activities(run: Object) -> dict[str, Activity]:
    definition = (run.get("spec") or {}).get("inline") or (run.get("status") or {}).get("definition") or {}
    found = {}
    for entry in definition.get("activities") or []:
        try:
            activity = Activity.parse(entry)
        except pydantic.ValidationError:
            continue  # of a newer version: show less
        found[activity.name] = activity
    return found
