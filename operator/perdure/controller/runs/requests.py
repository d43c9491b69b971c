"""The requests to a run: which of them the next step processes, and how they are answered.

A run records a request of another run only once. It drops the ID of such a request when the sender has recorded the answer. A
second copy of the request can arrive after that: from an operator that worked on the sender before, or at the same time, or when
a delivery is retried. So the sender is read before its request is recorded, and after the version of the run that the commit
replaces was read:

    The sender still waits     The ID was not dropped before, so the run knows the ID, or has never recorded the request.
                               If another operator records the request in the meantime, the commit conflicts.
    The sender does not wait   The request was recorded, or nobody needs it anymore: it is dropped.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from perdure.api.json_values import mapping
from perdure.api.reasons import ConditionReason
from perdure.controller.reconcile.reconciler import Inbox, PendingRequest
from perdure.controller.runs.effects.context import EffectContext
from perdure.controller.workflows.definitions import Definition
from perdure.engine import inputs
from perdure.engine.inputs import Answer
from perdure.engine.starts import ExternalReference
from perdure.kube import client as kube
from perdure.language.signals import unknown_signal
from perdure.runtime.attempts import RunRef
from perdure.runtime.operation_requests import payload_of

_READS: Final = 16
"""How many senders are read at the same time."""


async def next_requests(inbox: Inbox[inputs.Request], context: EffectContext) -> list[PendingRequest[inputs.Request]]:
    """Return the requests that the next step processes, and drop those whose senders do not wait for the answer.

    The step must drop only IDs that could be dropped before this call: a sender may record an answer during the call.

    Raises:
        RequestError: The API server did not respond.
    """
    requests = inbox.next()
    senders = list(dict.fromkeys(sender.run_id for each in requests if (sender := _sender(each.request))))
    if not senders:
        return requests
    at_once = asyncio.Semaphore(_READS)

    async def read(run_id: str) -> Collection[str]:
        async with at_once:
            return await _awaited(run_id, context)

    awaited = dict(zip(senders, await asyncio.gather(*map(read, senders)), strict=True))
    current = []
    for each in requests:
        sender = _sender(each.request)
        if sender is None or str(sender.initiated_event_id) in awaited[sender.run_id]:
            current.append(each)
        else:
            inbox.drop(each)
    return current


def _sender(request: inputs.Request) -> ExternalReference | None:
    """The run that sends a request, and the event that initiated it; None for requests of others."""
    return request.external if isinstance(request, inputs.SignalRequested | inputs.CancelRequested) else None


async def _awaited(run_id: str, context: EffectContext) -> Collection[str]:
    """The initiated event IDs of the requests to other runs whose answers a run waits for; none if it was deleted."""
    entry = context.peers.directory.get(run_id)
    if entry is None:
        return ()
    try:
        run = await context.client.get(context.url(entry.name))
    except kube.NotFoundError:
        return ()
    if run["metadata"]["uid"] != run_id:
        return ()
    return mapping(mapping(mapping(run.get("status")).get("state")).get("externals"))


def carriers(requests: Sequence[PendingRequest[inputs.Request]]) -> list[PendingRequest[inputs.Request]]:
    """The requests with a payload."""
    return [each for each in requests if payload_of(each.request) is not None]


def prolongs_task(requests: Sequence[PendingRequest[inputs.Request]]) -> bool:
    """Whether a worker prolongs its workflow task, so that the commit that ends this task begins another one."""
    return any(isinstance(each.request, inputs.TaskCompleted) and each.request.force_new_task for each in requests)


def with_warning(request: inputs.Request, answer: Answer, run: RunRef, definition: Definition | None) -> Answer:
    """The answer of a run to a request, with a warning for a signal that its workflow never waits for."""
    if definition is None or not isinstance(request, inputs.SignalRequested) or not answer.ok:
        return answer
    if answer.reason not in {"", ConditionReason.DEFERRED}:
        return answer
    unknown = unknown_signal(definition.program, request.signal_name)
    if not unknown:
        return answer
    reason = ConditionReason.SIGNAL_NOT_AWAITED.value
    message = f"`{run.name}` keeps the signal, but {unknown}"
    return Answer(ok=True, reason=reason, message=f"{message}; {answer.message}" if answer.message else message)


def answer_if_terminated(request: inputs.Request, reason: str) -> Answer:
    """The answer to a request that made the run too large, so that the run was terminated."""
    if isinstance(request, inputs.TerminateRequested):
        return Answer(ok=True)
    return Answer(ok=False, reason=ConditionReason.PAYLOAD_TOO_LARGE.value, message=reason)
