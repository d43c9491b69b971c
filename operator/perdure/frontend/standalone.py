"""The shared parts of the RPCs of standalone activities and Nexus operations: clients start, follow, and stop them."""

import asyncio
import hashlib
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

from google.protobuf.message import Message
from temporalio.api.common.v1 import WorkflowExecution

from perdure.api.phases import RunKind
from perdure.archive.records import status_named
from perdure.controller.directory import Entry
from perdure.engine import inputs
from perdure.engine.starts import StartExtras
from perdure.engine.state import RunState
from perdure.frontend.errors import CompletedError, RpcError, invalid, precondition, unavailable
from perdure.frontend.matching.polls import LONGEST_CLIENT_POLL, LONGEST_POLL
from perdure.frontend.messages.values import MAX_BLOB, from_enum
from perdure.frontend.runs.gateway import RunGateway, View, check_length, not_open
from perdure.frontend.runs.starts import RunCreator, StartedRun, run_name, workflow_run
from perdure.frontend.transport.rpc import CallContext

_METADATA = (("summary", 400), ("details", 20_000))
"""Maximum size of user metadata, in bytes."""
_Response = TypeVar("_Response")


class StandaloneRuns:
    """The RPCs that standalone activities and standalone Nexus operations have in common."""

    def __init__(self, runs: RunGateway, creator: RunCreator, kind: RunKind, *, max_reason: int = MAX_BLOB) -> None:
        """Create it for the runs of one kind.

        Args:
            runs: The runs of the operator.
            creator: Creates runs.
            kind: The kind of the runs.
            max_reason: The size limit of the reason of a request, in bytes.
        """
        self._runs = runs
        self._creator = creator
        self._kind = kind
        self._id_field = "activity_id" if kind is RunKind.ACTIVITY else "operation_id"
        self._max_reason = max_reason

    def find(self, request: Any) -> Entry:
        """Find the run that a request names.

        Raises:
            RpcError: It does not exist, or an ID cannot be one.
        """
        named = getattr(request, self._id_field)
        return self._runs.find_standalone(self._kind, request.namespace, named, request.run_id)

    # Starting

    def name_of(self, request: Any) -> str:
        """Return the name of the WorkflowRun that a start creates; a new one each time if the start has no request ID."""
        return run_name(getattr(request, self._id_field), request.request_id, kind=self._kind.value)

    async def start(
        self, request: Any, spec: dict[str, Any], extras: StartExtras, policies: tuple[str, str], principal: str
    ) -> StartedRun:
        """Start a run, or find the one that the policies select.

        Args:
            request: The start.
            spec: The spec of the WorkflowRun, without policies.
            extras: The other parts of the run.
            policies: The policies for a closed run and for an open run with the ID.
            principal: The user that the API server authenticated.

        Raises:
            RpcError: The ID is in use, or the run cannot be created.
        """
        reuse, conflict = policies
        body = workflow_run(
            request.namespace, self.name_of(request), spec, extras, policies=policies, principal=principal
        )
        known = await self._creator.existing(body, self._kind, reuse=reuse, conflict=conflict)
        return StartedRun(known, started=False) if known is not None else await self._creator.create(body)

    # Following

    async def once_changed(
        self, request: Any, call: CallContext, describe: Callable[[View], Awaitable[_Response]]
    ) -> _Response | None:
        """Describe a run; with the token of an earlier description, wait for a change. None if there is no change in time.

        Raises:
            RpcError: The token does not belong to this run, or the run has not begun.
        """
        token, entry = request.long_poll_token, self.find(request)
        if token:
            _check_token(token, entry.uid)
        runs, seconds = self._runs, call.within(LONGEST_POLL if token else LONGEST_CLIENT_POLL)
        if not await runs.has_started(entry.uid, seconds):
            raise not_started(entry)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    with runs.changes.next_change(entry.uid) as changed:
                        response: Any = await describe(await runs.view(entry))
                        if response.long_poll_token != token:
                            return response  # type: ignore[no-any-return]
                        await changed
        return None

    # Stopping

    async def cancel(self, request: Any, call: CallContext) -> None:
        """Request a cancellation. A repeated request changes nothing.

        Raises:
            RpcError: The run has closed, or another request has already requested the cancellation.
        """

        def refused(entry: Entry, state: RunState, before: str) -> RpcError | None:
            if state.closed:
                return _terminal(entry, state)
            if state.cancel_requested:
                return precondition(f"cancellation already requested with request ID {before}")
            return None

        await self._stop(request, call, inputs.CancelRequested, "cancel/", refused)

    async def terminate(self, request: Any, call: CallContext) -> None:
        """Terminate a run without notifying a worker. A repeated request changes nothing.

        Raises:
            RpcError: The run has closed.
        """

        def refused(_: Entry, state: RunState, before: str) -> RpcError | None:
            if before:
                return precondition(f"already terminated with request ID {before}")
            return not_open(state) if state.closed else None

        await self._stop(request, call, inputs.TerminateRequested, "terminate/", refused)

    async def _stop(
        self,
        request: Any,
        call: CallContext,
        kind: type[inputs.CancelRequested | inputs.TerminateRequested],
        prefix: str,
        refused: Callable[[Entry, RunState, str], RpcError | None],
    ) -> None:
        """Pass a request to stop to a run.

        Args:
            request: The request.
            call: The call.
            kind: The kind of the request.
            prefix: Prefix of stored request IDs, because requests of different kinds may have the same ID.
            refused: Returns why the run rejects the request, given the ID of an earlier one of the same kind; empty for none.
        """
        entry = self.find(request)
        wanted = kind(
            request_id=prefix + request_id_of(request),
            reason=self._reason(request),
            identity=request.identity,
            principal=call.principal,
        )
        await self._runs.has_started(entry.uid, call.within(LONGEST_CLIENT_POLL))
        state = (await self._runs.view(entry)).state
        if state is None:
            raise not_started(entry)
        if wanted.request_id in state.requests:
            return
        before = next((each for each in state.requests if each.startswith(prefix)), "").removeprefix(prefix)
        if error := refused(entry, state, before):
            raise error
        await self.demand(entry, wanted)

    async def delete(self, request: Any) -> None:
        """Remove a run with its history, also from the archive. This stops an open run.

        Raises:
            RpcError: It does not exist, an ID cannot be one, or the archive cannot be used.
        """

        async def find() -> Entry:
            return self.find(request)

        execution = WorkflowExecution(workflow_id=getattr(request, self._id_field), run_id=request.run_id)
        await self._runs.delete_everywhere(self._kind, request.namespace, execution, find)

    async def demand(self, entry: Entry, request: inputs.Request) -> None:
        """Pass a request to a run, which must accept it.

        Raises:
            RpcError: The run has closed, or rejected the request.
        """
        try:
            await self._runs.demand(entry, request)
        except CompletedError:
            state = (await self._runs.view(entry)).state
            if state is None:
                raise
            raise _terminal(entry, state) from None

    def _reason(self, request: Any) -> str:
        size = len(request.reason.encode())
        if size > self._max_reason:
            raise invalid(f"reason exceeds length limit. Length={size} Limit={self._max_reason}")
        return str(request.reason)


def id_policies(request: Any, reuse_policy: Any, conflict_policy: Any) -> tuple[str, str]:
    """The policies for a start whose ID a closed run or an open run has.

    Args:
        request: The start.
        reuse_policy: The enum of the policy for closed runs.
        conflict_policy: The enum of the policy for open runs.

    Raises:
        RpcError: A policy is unknown.
    """
    reuse, conflict = (
        from_enum(reuse_policy, request.id_reuse_policy),
        from_enum(conflict_policy, request.id_conflict_policy),
    )
    if not reuse:
        raise invalid(f"unsupported ID reuse policy: {request.id_reuse_policy}")
    if not conflict:
        raise invalid(f"unsupported ID conflict policy: {request.id_conflict_policy}")
    return "AllowDuplicate" if reuse == "Unspecified" else reuse, "Fail" if conflict == "Unspecified" else conflict


def check_metadata(request: Any) -> None:
    """Check that the metadata of a start is not too large.

    Raises:
        RpcError: The metadata is too large.
    """
    for name, limit in _METADATA:
        size = getattr(request.user_metadata, name).ByteSize()
        if size > limit:
            raise invalid(f"user_metadata.{name} exceeds size limit. Length={size} Limit={limit}")


def request_id_of(request: Any) -> str:
    """The ID of a request; a new one if it has none.

    Raises:
        RpcError: The ID is too long.
    """
    request_id = request.request_id or uuid.uuid4().hex
    check_length(request_id, "request ID")
    return str(request_id)


def not_started(entry: Entry) -> RpcError:
    """Build the error for a request that requires a run that has started."""
    return unavailable(f"the {entry.kind.noun} has not started yet")


def _terminal(entry: Entry, state: RunState) -> RpcError:
    return precondition(f"{entry.kind.noun} is in terminal state {status_named(state.status.value)}")


def token_of(run_id: str, info: Message) -> bytes:
    """The token of a long poll, which identifies the content of a description: it changes if the content changes."""
    return f"{run_id}/{hashlib.sha256(info.SerializeToString(deterministic=True)).hexdigest()}".encode()


def _check_token(token: bytes, run_id: str) -> None:
    """Check that the token of a long poll belongs to a run.

    Raises:
        RpcError: The token is not valid, or belongs to another run.
    """
    named, found, digest = token.partition(b"/")
    if not found or len(digest) != hashlib.sha256().digest_size * 2:
        raise invalid("invalid long poll token")
    if named != run_id.encode():
        raise invalid("long poll token does not match execution")
