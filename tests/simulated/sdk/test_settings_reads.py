"""Reads of settings that several callers wait for."""

import asyncio
import gc
from typing import Any

from perdure.frontend.matching.dispatch import TASK_QUEUES
from perdure.frontend.registry import NamespaceRegistry
from perdure.simulation.cluster.apiserver import Request, Response
from perdure.simulation.cluster.apiserver import refused as refusal
from perdure.simulation.cluster.store import Refusal
from simulated.place import Place


def test_a_failed_read_without_remaining_callers_is_not_reported(place: Place) -> None:
    reported = list[dict[str, Any]]()
    asked = list[str]()
    place.loop.set_exception_handler(lambda _, context: reported.append(context))

    def refuse(request: Request) -> Response:
        asked.append(request.url)
        return refusal(Refusal(403, "Forbidden", "a fault"))

    async def play() -> None:
        registry = NamespaceRegistry(TASK_QUEUES, place.client, lambda _: None)
        callers = [asyncio.create_task(registry.load("default")) for _ in range(2)]
        await asyncio.sleep(0)
        for caller in callers:
            caller.cancel()
        await asyncio.sleep(60)

    place.server.interceptors.append(refuse)
    place.run(play())
    gc.collect()
    assert len(asked) == 1
    assert reported == []
