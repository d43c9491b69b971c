"""The Schedules of a namespace, as an asynchronous client reads and controls them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from perdure.api.json_values import mapping, mappings
from perdure.api.policies import OverlapPolicy
from perdure.api.times import format_duration, format_time, read_kubernetes_time
from perdure.client.errors import ClientError
from perdure.client.run import AsyncRun, Duration, perform, seconds_of
from perdure.kube import clock
from perdure.lazy import lazily

with lazily():
    from perdure.client import schedule_manifests

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.client.requests import Object
    from perdure.client.run import Access
    from perdure.client.run_requests import RunRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleState:
    """A Schedule as it was read."""

    name: str
    ready: bool
    """Whether the spec is valid, and runs can start."""
    reason: str
    """The reason of the condition `Ready`; empty if no operator has processed it."""
    message: str
    paused: bool
    last: datetime | None
    """The last time for which a run was started."""
    next: tuple[datetime, ...]
    """The next times, at most ten."""
    runs: tuple[str, ...]
    """The names of the last runs that it has started, at most ten, oldest first."""
    object: Object
    """The Schedule, as the API server has it."""

    @staticmethod
    def of(found: Object) -> ScheduleState:
        """Read a Schedule."""
        status = mapping(found.get("status"))
        ready = next((each for each in mappings(status.get("conditions")) if each.get("type") == "Ready"), {})
        times = (read_kubernetes_time(each) for each in status.get("nextScheduledTimes") or ())
        return ScheduleState(
            name=found["metadata"]["name"],
            ready=ready.get("status") == "True",
            reason=str(ready.get("reason") or ""),
            message=str(ready.get("message") or ""),
            paused=bool(found["spec"].get("paused") or status.get("paused")),
            last=read_kubernetes_time(status.get("lastScheduledTime")),
            next=tuple(time for time in times if time is not None),
            runs=tuple(str(each.get("workflowRun")) for each in mappings(status.get("recentActions"))),
            object=found,
        )


class AsyncSchedules:
    """The Schedules of the client's namespace.

    All methods raise ClientErrors: NotFoundError if the Schedule does not exist, ForbiddenError, and UnreachableError.
    """

    def __init__(self, access: Access) -> None:
        """Made by `AsyncClient`."""
        self._access = access
        self._cluster = access.cluster

    async def create(
        self,
        name: str,
        run: RunRequest[Any],
        *,
        cron: str | Sequence[str] = (),
        every: Duration | None = None,
        time_zone: str | None = None,
        overlap_policy: OverlapPolicy | str | None = None,
        catchup_window: Duration | None = None,
        jitter: Duration | None = None,
        paused: bool = False,
        notes: str = "",
        **spec: Any,
    ) -> ScheduleState:
        """Create a Schedule.

        Args:
            name: Its name.
            run: What it starts, such as `RunRequest.of_flow(nightly, sources=["eu"])`.
            cron: Cron lines.
            every: An interval.
            time_zone: IANA name, such as `Europe/Berlin`; None: UTC.
            overlap_policy: What happens if an earlier run is open; None: `Skip`.
            catchup_window: How late a run can start; None: a minute.
            jitter: Maximum random delay of each start.
            paused: Whether it is created paused.
            notes: Notes for people.
            spec: Further fields of the spec, as in a manifest, such as `calendars`.

        Raises:
            AlreadyExistsError: A Schedule with this name exists.
            ClientError: The spec is not valid, or its times never come.
        """
        fields: Object = {
            "cron": [cron] if isinstance(cron, str) else list(cron),
            "intervals": [] if every is None else [{"every": _text(every)}],
            "timeZone": time_zone,
            "overlapPolicy": None if overlap_policy is None else OverlapPolicy(overlap_policy).value,
            "catchupWindow": _text(catchup_window),
            "jitter": _text(jitter),
            "paused": paused or None,
            "notes": notes or None,
            "workflowRunTemplate": {"spec": run.run_spec},
            **spec,
        }
        manifest = schedule_manifests.new_schedule(name, fields)
        outlook = schedule_manifests.outlook_of(manifest, clock.now())
        if not outlook.ready:
            raise ClientError(f"{outlook.path}: {outlook.message}; nothing was created")
        return ScheduleState.of(await self._cluster.create("schedules", manifest))

    async def list(self) -> list[ScheduleState]:
        """Read all Schedules of the namespace."""
        found = await self._cluster.list("schedules")
        return [ScheduleState.of(each) for each in found]

    async def get(self, name: str) -> ScheduleState:
        """Read a Schedule."""
        return ScheduleState.of(await self._cluster.read("Schedule", "schedules", name))

    async def delete(self, name: str) -> None:
        """Delete a Schedule, and its runs."""
        await self._cluster.delete("Schedule", "schedules", name)

    async def pause(self, name: str, reason: str = "") -> None:
        """Pause a Schedule: no scheduled runs start until it is unpaused, and no further ones of a backfill in progress."""
        await self._request("pause", {"reason": reason or None}, name)

    async def unpause(self, name: str, reason: str = "") -> None:
        """Unpause a Schedule that a request has paused. No runs start for times that have passed.

        Raises:
            RefusedError: `spec.paused` is true: the manifest pauses it.
        """
        await self._request("unpause", {"reason": reason or None}, name)

    async def trigger(self, name: str, *, overlap_policy: OverlapPolicy | str | None = None) -> AsyncRun[Any] | None:
        """Start a run now, even if the Schedule is paused.

        Returns:
            The run; None if the overlap policy did not start one.
        """
        policy = None if overlap_policy is None else OverlapPolicy(overlap_policy).value
        result = (await self._request("trigger", {"overlapPolicy": policy}, name)).get("result") or {}
        return (
            AsyncRun(self._access, str(result["workflowRun"]), lambda stored: stored)
            if result.get("workflowRun")
            else None
        )

    async def backfill(
        self,
        name: str,
        start: datetime,
        end: datetime,
        *,
        overlap_policy: OverlapPolicy | str | None = None,
        at_most: int | None = None,
    ) -> None:
        """Start the runs of all times between two points in time.

        Args:
            name: Name of the Schedule.
            start: The first time to consider, with a time zone.
            end: The last time to consider, with a time zone.
            overlap_policy: What happens if an earlier run is open; None: that of the Schedule.
            at_most: Maximum number of its runs that are open at the same time.
        """
        policy = None if overlap_policy is None else OverlapPolicy(overlap_policy).value
        times = {"startTime": format_time(start), "endTime": format_time(end)}
        await self._request("backfill", {**times, "overlapPolicy": policy, "maxConcurrency": at_most}, name)

    async def cancel_backfills(self, name: str, reason: str = "") -> None:
        """Start no further runs of the backfills in progress; open runs continue. Repeating this changes nothing."""
        await self._request("cancel", {"reason": reason or None}, name)

    async def _request(self, verb: str, request: Object, name: str) -> Object:
        return await perform(self._access, verb, request, {"kind": "Schedule", "name": name})


def _text(duration: Duration | None) -> str | None:
    """Return a duration as in a manifest."""
    seconds = seconds_of(duration)
    return None if seconds is None else format_duration(timedelta(seconds=seconds))
