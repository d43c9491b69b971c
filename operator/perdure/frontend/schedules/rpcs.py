"""RPCs about schedules."""

import asyncio
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice, takewhile

import msgspec
import pydantic
from temporalio.api.enums.v1 import ScheduleOverlapPolicy
from temporalio.api.schedule.v1 import SchedulePatch
from temporalio.api.workflowservice.v1 import (
    CountSchedulesRequest,
    CountSchedulesResponse,
    CreateScheduleRequest,
    CreateScheduleResponse,
    DeleteScheduleRequest,
    DeleteScheduleResponse,
    DescribeScheduleRequest,
    DescribeScheduleResponse,
    ListScheduleMatchingTimesRequest,
    ListScheduleMatchingTimesResponse,
    ListSchedulesRequest,
    ListSchedulesResponse,
    PatchScheduleRequest,
    PatchScheduleResponse,
    UpdateScheduleRequest,
    UpdateScheduleResponse,
)

from perdure.api.models import mistakes
from perdure.api.names import schedule_name
from perdure.api.policies import OverlapPolicy
from perdure.api.reasons import ConditionReason
from perdure.api.search_attributes import attribute_type
from perdure.archive.filters import InvalidQueryError
from perdure.controller.directory import Directory
from perdure.controller.dispatch.schedules import Schedules
from perdure.controller.reconcile.newer_states import message_for
from perdure.frontend.errors import (
    TOO_LARGE,
    RpcError,
    already_started,
    invalid,
    namespace_not_found,
    not_found,
    precondition,
    unavailable,
)
from perdure.frontend.messages import payloads as data
from perdure.frontend.messages.tokens import page_of
from perdure.frontend.messages.values import MAX_ID, UnfitError, from_enum, timestamp
from perdure.frontend.schedules import messages
from perdure.frontend.schedules.messages import ClientOptions
from perdure.frontend.transport.rpc import CallContext
from perdure.frontend.visibility.index import is_known
from perdure.frontend.visibility.lists import converter, lists_of
from perdure.frontend.visibility.query_language import parse
from perdure.frontend.visibility.search_attributes import SearchAttributeRegistry
from perdure.kube import client as kube
from perdure.kube.clock import now
from perdure.schedule import inputs as inp
from perdure.schedule.calendar import InvalidTimesError, Work
from perdure.schedule.run_manifests import id_of
from perdure.schedule.times import EARLIEST, LATEST, Times

MAX_TIMES = 1_000
"""Maximum number of times in one response (Temporal: service/worker/scheduler, maxListMatchingTimesCount)."""
PAGE = 1_000
MAX_WORK = 1_000_000
"""Maximum number of steps of the search for the times of one response."""
_TRIES = 20
_FIELDS = {"ScheduleId": "Keyword", "TemporalSchedulePaused": "Bool"}


class ScheduleRpcs:
    """Creates, changes and describes Schedules."""

    def __init__(
        self,
        client: kube.Client,
        directory: Directory,
        schedules: Schedules,
        search_attributes: SearchAttributeRegistry,
    ) -> None:
        self._client = client
        self._directory = directory
        self._schedules = schedules
        self._search_attributes = search_attributes

    async def create_schedule(self, request: CreateScheduleRequest, call: CallContext) -> CreateScheduleResponse:
        """Create a schedule. A repeated request finds the schedule that it has created."""
        _check_id(request.schedule_id)
        types = await self._search_attributes.types(request.namespace)
        options = ClientOptions(
            request_id=request.request_id,
            memo=data.memo_to_json(request.memo),
            search_attributes=data.attributes_to_json(
                request.search_attributes.indexed_fields, types, request.namespace
            )
            or None,
        )
        try:
            body = messages.new_schedule(
                request.schedule,
                types,
                namespace=request.namespace,
                name=schedule_name(request.schedule_id),
                schedule_id=request.schedule_id,
                options=options,
                identity=request.identity,
            )
            _check(body)
            requests = patch_requests(body, request.initial_patch, request.request_id)
        except ValueError as error:
            raise _refused(error) from error
        try:
            made = await self._client.create(kube.path(kube.PERDURE, request.namespace, "schedules"), body)
        except kube.AlreadyExistsError:
            made = await self._read(request.namespace, request.schedule_id)
            if not request.request_id or messages.client_options(made).request_id != request.request_id:
                message = f"schedule already exists. ScheduleId: {request.schedule_id}"
                raise already_started(message, "", "") from None
        except kube.NotFoundError:
            raise namespace_not_found(request.namespace) from None
        except kube.InvalidError as error:
            raise invalid(error.message) from error
        except kube.TooLargeError as error:
            raise invalid(TOO_LARGE) from error
        self._schedules.update(made)
        await self._submit(made, requests)
        return CreateScheduleResponse(conflict_token=_token(made))

    async def describe_schedule(self, request: DescribeScheduleRequest, call: CallContext) -> DescribeScheduleResponse:
        """Describe a schedule: its spec, and its recent and upcoming actions."""
        obj = await self._read(request.namespace, request.schedule_id)
        try:
            future = await first_times(messages.upcoming(obj, now(), Work(MAX_WORK)), messages.SHOWN)
            return DescribeScheduleResponse(
                schedule=messages.described(obj),
                info=messages.info(self._with_runs(obj), future),
                memo=messages.memo(obj),
                search_attributes=messages.search_attributes(obj),
                conflict_token=_token(obj),
            )
        except ValueError as error:
            raise _refused(error) from error

    async def update_schedule(self, request: UpdateScheduleRequest, call: CallContext) -> UpdateScheduleResponse:
        """Change a schedule. Its open runs continue."""
        types = await self._search_attributes.types(request.namespace)

        def change(obj: kube.Object) -> kube.Object:
            if request.conflict_token and request.conflict_token != _token(obj):
                raise precondition("mismatched conflict token: the schedule has changed since it was described")
            if why := messages.newer_options(obj):
                raise unavailable(message_for(why))
            options = msgspec.structs.replace(messages.client_options(obj), updated=now())
            if request.HasField("search_attributes"):
                found = data.attributes_to_json(request.search_attributes.indexed_fields, types, request.namespace)
                options = msgspec.structs.replace(options, search_attributes=found or None)
            if request.HasField("memo"):
                changes = data.upserted(request.memo.fields)
                kept = {name: value for name, value in {**(options.memo or {}), **changes}.items() if value is not None}
                options = msgspec.structs.replace(options, memo=kept or None)
            changed = messages.changed_schedule(obj, request.schedule, types, options)
            _check(changed)
            return changed

        obj = await self._change(request.namespace, request.schedule_id, change)
        if not request.schedule.state.paused:
            await self._unpause(obj, request.request_id, request.schedule.state.notes)
        return UpdateScheduleResponse()

    async def patch_schedule(self, request: PatchScheduleRequest, call: CallContext) -> PatchScheduleResponse:
        """Trigger, backfill, pause or unpause a schedule."""
        if not request.HasField("patch"):
            raise invalid("Patch is not set on request.")
        patch = request.patch
        obj = await self._read(request.namespace, request.schedule_id)
        await self._submit(obj, patch_requests(obj, patch, request.request_id))
        for paused, notes in ((True, patch.pause), (False, patch.unpause)):
            if notes:

                def change(found: kube.Object, paused: bool = paused, notes: str = notes) -> kube.Object:
                    return messages.paused_schedule(found, paused, notes)

                obj = await self._change(request.namespace, request.schedule_id, change)
        if patch.unpause:
            await self._unpause(obj, request.request_id, patch.unpause)
        return PatchScheduleResponse()

    async def delete_schedule(self, request: DeleteScheduleRequest, call: CallContext) -> DeleteScheduleResponse:
        """Remove a schedule. Its runs stay, and open ones continue, as on Temporal's server."""
        obj = await self._read(request.namespace, request.schedule_id)
        url = kube.path(kube.PERDURE, request.namespace, "schedules", obj["metadata"]["name"])
        await self._client.delete(url, uid=obj["metadata"]["uid"], propagation="Orphan")
        return DeleteScheduleResponse()

    async def list_schedule_matching_times(
        self, request: ListScheduleMatchingTimesRequest, call: CallContext
    ) -> ListScheduleMatchingTimesResponse:
        """List the times between two instants."""
        obj = await self._read(request.namespace, request.schedule_id)
        after, end = (timestamp(request, field) for field in ("start_time", "end_time"))
        if after is None or end is None:
            raise invalid("start_time and end_time must be set")
        response = ListScheduleMatchingTimesResponse()
        try:
            times = messages.between(obj, messages.spec_of(obj), after, Work(MAX_WORK))
            for time in await first_times(takewhile(lambda time: time <= end, times), MAX_TIMES):
                response.start_time.add().FromDatetime(time)
        except (ValueError, InvalidTimesError) as error:
            raise _refused(error) from error
        return response

    # Lists

    async def list_schedules(self, request: ListSchedulesRequest, call: CallContext) -> ListSchedulesResponse:
        """List the schedules that match a filter, the newest first."""
        found = await self._find(request.namespace, request.query)
        page, token = page_of(found, request.next_page_token, request.maximum_page_size, PAGE)
        response = ListSchedulesResponse(next_page_token=token)
        work = Work(MAX_WORK)
        for obj in page:
            try:
                times = messages.upcoming(obj, now(), work)
                future = await first_times(times, messages.SHOWN_IN_LISTS)
                response.schedules.append(messages.entry(self._with_runs(obj), future))
            except pydantic.ValidationError:  # its condition Ready says why
                response.schedules.add(schedule_id=id_of(obj))
        return response

    async def count_schedules(self, request: CountSchedulesRequest, call: CallContext) -> CountSchedulesResponse:
        """Count the schedules that match a filter."""
        return CountSchedulesResponse(count=len(await self._find(request.namespace, request.query)))

    async def _find(self, namespace: str, text: str) -> list[kube.Object]:
        found = await self._client.lists.all(kube.path(kube.PERDURE, namespace, "schedules"))
        types = await self._search_attributes.filter_types(namespace)
        for obj in found:
            attributes = messages.client_options(obj).search_attributes or {}
            types |= {name: attribute_type(value, name) for name, value in attributes.items()}
        try:
            known = types | _FIELDS
            query = parse(text, converter(known), lists_of(known))
            if query.group_by:
                raise InvalidQueryError("'group by' is not supported for schedules")  # noqa: TRY301 (reported like the others)
            for name in sorted(query.names):
                _check_name(name, types)
            matches = []
            for obj in found:
                if query.test(messages.lookup(obj)):
                    matches.append(obj)
                await query.budget.yield_turn()
        except InvalidQueryError as error:
            raise invalid(f"invalid query: {error}") from error
        return sorted(matches, key=lambda obj: obj["metadata"]["creationTimestamp"], reverse=True)

    # One schedule

    def _with_runs(self, obj: kube.Object) -> kube.Object:
        return messages.with_runs(obj, partial(self._directory.run_id_of, obj["metadata"]["namespace"]))

    async def _read(self, namespace: str, schedule_id: str) -> kube.Object:
        _check_id(schedule_id)
        url = kube.path(kube.PERDURE, namespace, "schedules", schedule_name(schedule_id))
        try:
            obj = await self._client.get(url)
        except kube.NotFoundError:
            raise not_found(f"schedule not found: {schedule_id}") from None
        if id_of(obj) != schedule_id or obj["metadata"].get("deletionTimestamp"):
            raise not_found(f"schedule not found: {schedule_id}")
        return obj

    async def _change(
        self, namespace: str, schedule_id: str, change: Callable[[kube.Object], kube.Object]
    ) -> kube.Object:
        """Replace a schedule; if another client has written in the meantime, read it again."""
        url = kube.path(kube.PERDURE, namespace, "schedules", schedule_name(schedule_id))
        for _ in range(_TRIES):
            obj = await self._read(namespace, schedule_id)
            try:
                obj = await self._client.replace(url, change(obj))
            except kube.ConflictError:
                continue
            except kube.NotFoundError:
                raise not_found(f"schedule not found: {schedule_id}") from None
            except kube.InvalidError as error:
                raise invalid(error.message) from error
            except kube.TooLargeError as error:
                raise invalid(TOO_LARGE) from error
            except ValueError as error:
                raise _refused(error) from error
            self._schedules.update(obj)
            return obj
        raise precondition("other clients keep changing the schedule; retry later")

    async def _submit(self, obj: kube.Object, requests: Sequence[inp.ScheduleRequest]) -> None:
        """Create the Operation for an immediate request."""
        for request in requests:
            await self._create_operation(obj, request)

    async def _unpause(self, obj: kube.Object, request_id: str, notes: str) -> None:
        """End a pause that the status records: by an Operation, or after a failure."""
        if (obj.get("status") or {}).get("paused"):
            request_id = request_id or uuid.uuid4().hex
            await self._create_operation(
                obj, inp.ScheduleUnpauseRequested(request_id=f"{request_id}/unpause", reason=notes)
            )

    async def _create_operation(self, obj: kube.Object, request: inp.ScheduleRequest) -> None:
        meta = obj["metadata"]
        answer = await self._schedules.request(meta["namespace"], meta["name"], request)
        if answer.ok or answer.reason == ConditionReason.OVERLAP_SKIPPED:
            return
        if answer.reason == ConditionReason.TARGET_NOT_FOUND:
            raise not_found(answer.message)
        raise invalid(answer.message)


async def first_times(times: Iterable[datetime], limit: int) -> list[datetime]:
    """Return the first times, up to a limit. Yield to other tasks after each search."""
    found = []
    for time in islice(times, limit):
        found.append(time)
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    return found


def patch_requests(obj: kube.Object, patch: SchedulePatch, request_id: str) -> list[inp.ScheduleRequest]:
    """Return the immediate requests of a patch.

    Raises:
        UnfitError: A request is not valid.
    """
    request_id = request_id or uuid.uuid4().hex
    requests: list[inp.ScheduleRequest] = []
    if patch.HasField("trigger_immediately"):
        trigger = patch.trigger_immediately
        scheduled = timestamp(trigger, "scheduled_time")
        if scheduled is not None and not EARLIEST <= scheduled < LATEST:
            raise UnfitError(
                f"patch.trigger_immediately.scheduled_time: must be at {EARLIEST:%Y-%m-%d} or later, and before {LATEST:%Y-%m-%d}"
            )
        requests.append(
            inp.Triggered(
                request_id=f"{request_id}/trigger",
                overlap_policy=_overlap(trigger.overlap_policy),
                scheduled_time=scheduled,
            )
        )
    for index, backfill in enumerate(patch.backfill_request):
        start, end = (timestamp(backfill, field) for field in ("start_time", "end_time"))
        if start is None or end is None or end < start:
            raise UnfitError(f"patch.backfill_request[{index}]: start_time must be set, and not be after end_time")
        if start < EARLIEST:
            raise UnfitError(
                f"patch.backfill_request[{index}].start_time: there are no times before {EARLIEST:%Y-%m-%d}"
            )
        policy = OverlapPolicy(obj["spec"].get("overlapPolicy", OverlapPolicy.SKIP))
        requests.append(
            inp.BackfillRequested(
                request_id=f"{request_id}/backfill/{index}",
                start=start,
                end=end,
                overlap_policy=_overlap(backfill.overlap_policy) or policy,
            )
        )
    return requests


def _check_id(schedule_id: str) -> None:
    if not schedule_id:
        raise invalid("ScheduleId is not set on request.")
    if len(schedule_id) > MAX_ID:
        raise invalid("ScheduleId length exceeds limit.")


def _check(obj: kube.Object) -> None:
    """Check that a schedule is valid.

    Raises:
        ValueError: The schedule is not valid.
    """
    try:
        Times(messages.spec_of(obj))
    except InvalidTimesError as error:
        raise ValueError(error.message) from error


def _refused(error: Exception) -> RpcError:
    problem = "; ".join(mistakes(error)) if isinstance(error, pydantic.ValidationError) else str(error)
    return invalid(f"invalid schedule: {problem}")


def _token(obj: kube.Object) -> bytes:
    meta = obj["metadata"]
    return f"{meta['uid']}/{meta.get('generation', 1)}".encode()


def _overlap(policy: int) -> OverlapPolicy | None:
    name = from_enum(ScheduleOverlapPolicy, policy)
    return OverlapPolicy(name) if name in set(OverlapPolicy) else None


def _check_name(name: str, types: Mapping[str, str]) -> None:
    if name not in _FIELDS and not is_known(name, dict(types)):
        raise InvalidQueryError(f"{name} is not a valid search attribute")
