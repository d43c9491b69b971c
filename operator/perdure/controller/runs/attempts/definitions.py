"""The definitions of the activities of a run that run in pods."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import msgspec

from perdure.api.kinds.workflow import Activity, ResultSize
from perdure.api.kinds.workspace import Workspace
from perdure.controller.retry_policies import Policies
from perdure.controller.workflows.definitions import CalledActivity, Definition, Definitions
from perdure.engine import inputs
from perdure.engine.commands import Command, ScheduleActivityTask
from perdure.engine.events import AnyEvent
from perdure.engine.failures import Failure
from perdure.engine.payloads import plain
from perdure.engine.retry import PolicyChoice, PolicyReference
from perdure.engine.state import PODS_QUEUE, PendingActivity, RunState
from perdure.engine.versioning import DeploymentVersion, Versioning
from perdure.kube.clock import now
from perdure.language.program import retry_policy
from perdure.language.step_paths import Path
from perdure.runtime.attempts import Attempt, definition_name
from perdure.runtime.pods.workspaces import writers


class ActivityDefinitions:
    """The activity definitions of one run."""

    def __init__(
        self,
        definitions: Definitions,
        policies: Policies,
        namespace: str,
        refuse: Callable[[PendingActivity, Failure], None],
    ) -> None:
        """Create it without definitions.

        Args:
            definitions: Finds the definition that a task queue names.
            policies: The RetryPolicies that definitions name.
            namespace: Namespace of the run.
            refuse: Called with an activity without a definition.
        """
        self._definitions = definitions
        self._policies = policies
        self._namespace = namespace
        self._refuse = refuse
        self._definition: Definition | None = None
        """The run's own definition; None if it has none."""
        self._known: Mapping[str, Activity] = {}
        """Those of the run's own definition, by name; and the last ones of the activities that code has scheduled."""
        self._version: DeploymentVersion | None = None
        """The version of the workers that a run of code is pinned to."""
        self._chosen: Mapping[int, _Chosen] = {}
        """Those of the open activities that code has scheduled, by the ID of the event that did so."""
        self._run_limited = False

    def define(self, definition: Definition | None) -> None:
        """Set the definition of the run; None if it has none of its own."""
        self._definition = definition
        self._known = definition.program.activities if definition is not None else {}
        self._run_limited = definition is not None and bool(definition.program.spec.limits)

    def of(self, activity: PendingActivity) -> Activity:
        """The definition of an activity that runs in pods."""
        chosen = self._chosen.get(activity.scheduled_event_id)
        return self._known[definition_name(activity)] if chosen is None else chosen.called.definition

    def workspaces_of(self, activity: PendingActivity) -> Mapping[str, Workspace]:
        """The workspaces that an activity can mount, by name."""
        chosen = self._chosen.get(activity.scheduled_event_id)
        if chosen is not None:
            return chosen.called.workspaces
        return (
            {} if self._definition is None else {each.name: each for each in self._definition.program.spec.workspaces}
        )

    def limited(self, activity: PendingActivity, state: RunState) -> bool:
        """Whether an activity, a step around it, or the run holds a WorkflowLimit."""
        path = Path.parse(activity.activity_id)
        around = {path.text, *path.enclosing()}
        by_step = any(Path.parse(each.activity_id).owner.text in around for each in state.holds.values())
        return self._run_limited or by_step or bool(self.of(activity).limits)

    def attempt(self, activity: PendingActivity) -> Attempt:
        """The current attempt of an activity, to build and read its pod."""
        definition = self.of(activity)
        service = "" if activity.task_queue else Path.parse(activity.activity_id).service
        return Attempt(
            scheduled_event_id=activity.scheduled_event_id,
            attempt=activity.attempt,
            activity_id=activity.activity_id,
            activity_type=activity.activity_type,
            input=plain(activity.input) if activity.task_queue else activity.input,
            last_heartbeat_details=activity.heartbeat_details,
            start_to_close=activity.start_to_close_timeout,
            heartbeat_timeout=activity.heartbeat_timeout,
            schedule_to_start=activity.schedule_to_start_timeout,
            started=activity.started_time is not None,
            waiting_reason=activity.waiting_reason,
            large_result=definition.result_size is ResultSize.LARGE,
            sidecar=definition.sidecar is not None,
            service=service,
        )

    async def writers(self, events: Sequence[AnyEvent]) -> Mapping[str, list[str]]:
        """The completed steps in a history of the run that may have written to a workspace, by its name.

        Raises:
            NotYetError: A definition is being compiled.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        use = await self._definitions.workspace_use(self._namespace, self._definition, events, self._version)
        return writers(events, use.activities)

    async def with_policies(self, observed: Sequence[inputs.RunInput], state: RunState) -> Sequence[inputs.RunInput]:
        """The inputs, with the retry policies of their definitions for the activities that code schedules in pods without one.

        Raises:
            NotYetError: A definition is being compiled.
            RequestError: The Kubernetes API request failed. Call again to retry.
        """
        if state.code is None:
            return observed
        versioning = state.code.versioning
        return [
            await self._with_policies(each, versioning.completed(each.versioning_behavior, each.deployment_version))
            if isinstance(each, inputs.TaskCompleted) and any(map(_lacks_policy, each.commands))
            else each
            for each in observed
        ]

    async def _with_policies(self, item: inputs.TaskCompleted, versioning: Versioning) -> inputs.TaskCompleted:
        kinds = {(each.task_queue, each.activity_type) for each in item.commands if _lacks_policy(each)}
        policies = {kind: await self._policy_of(*kind, versioning.pinned_to) for kind in sorted(kinds)}
        commands = (
            replace(each, retry_policy=policies[each.task_queue, each.activity_type]) if _lacks_policy(each) else each
            for each in item.commands
        )
        return replace(item, commands=tuple(commands))

    async def _policy_of(self, queue: str, activity: str, version: DeploymentVersion | None) -> PolicyChoice | None:
        """The retry policy of an activity of another Workflow; None without a definition: it fails when its attempt is due."""
        found = await self._definitions.activity(self._namespace, queue.removeprefix(PODS_QUEUE), activity, version)
        if isinstance(found, Failure):
            return None
        chosen = retry_policy(found.definition.retry_policy)
        if isinstance(chosen, PolicyReference):
            await self._policies.missing(self._namespace, [chosen.name])  # reads it if no watch has shown it yet
        return chosen

    async def in_pods(self, state: RunState) -> RunState:
        """The state with only the activities that run in pods, or that take the limits of a step.

        This finds the definitions of activities that code has scheduled. An activity without a definition is left out, because it
        is about to fail, or to end with a run whose definition is not valid.

        Raises:
            RequestError: The Kubernetes API request for a definition failed.
        """
        activities = {key: each for key, each in state.activities.items() if not each.by_worker}
        if state.code is not None:
            await self._choose(activities.values(), state.code.versioning.pinned_to)
        kept = {key: each for key, each in activities.items() if each.runs_nothing or self._is_known(each)}
        return msgspec.structs.replace(state, activities=kept) if len(kept) < len(state.activities) else state

    async def _choose(self, activities: Iterable[PendingActivity], version: DeploymentVersion | None) -> None:
        """Find the definitions of activities that code has scheduled: those of the version that decides the run.

        An attempt that is due keeps its definition if the run then moves to another version; the next one gets the new one.
        """
        chosen: dict[int, _Chosen] = {}
        found: dict[str, CalledActivity | Failure] = {}
        self._version = version
        for activity in activities:
            known = self._chosen.get(activity.scheduled_event_id)
            is_due = activity.started_time is not None or activity.scheduled_time <= now()
            if known is not None and known.attempt == activity.attempt and (known.version == version or is_due):
                chosen[activity.scheduled_event_id] = known
                continue
            name = definition_name(activity)
            if name not in found:
                workflow = activity.task_queue.removeprefix(PODS_QUEUE)
                found[name] = await self._definitions.activity(
                    self._namespace, workflow, activity.activity_type, version
                )
            definition = found[name]
            if isinstance(definition, Failure):
                self._refuse(activity, definition)
            else:
                chosen[activity.scheduled_event_id] = _Chosen(activity.attempt, version, definition)
        self._chosen = chosen
        called = {name: each.definition for name, each in found.items() if not isinstance(each, Failure)}
        self._known = {**self._known, **called}

    def _is_known(self, activity: PendingActivity) -> bool:
        if activity.task_queue:
            return activity.scheduled_event_id in self._chosen
        return definition_name(activity) in self._known


def _lacks_policy(command: Command) -> TypeGuard[ScheduleActivityTask]:
    """Whether code schedules an activity in a pod without a retry policy."""
    return (
        isinstance(command, ScheduleActivityTask)
        and command.retry_policy is None
        and command.task_queue.startswith(PODS_QUEUE)
    )


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The definition of an attempt."""

    attempt: int
    version: DeploymentVersion | None
    """The version of the workers from which it is."""
    called: CalledActivity
