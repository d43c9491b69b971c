"""Replays recorded histories with the code of flows, as a worker does when it resumes their runs."""

from __future__ import annotations

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

if TYPE_CHECKING:
    from perdure.flow.definitions import Flow


def replay(flow: Flow[..., Any], history: str | Path) -> None:
    """Check that the code of a flow decides as the run did whose history was recorded, so that such runs can continue with it.

    Args:
        flow: The flow.
        history: A file that `perdure history NAME --temporal` has written, or its text.

    Raises:
        temporalio.workflow.NondeterminismError: The code decides differently.
        ValueError: This is not a history of a run of the flow.
    """
    text = history.read_text() if isinstance(history, Path) else history
    if isinstance(history, str) and not history.lstrip().startswith("{"):
        text = Path(history).read_text()
    try:
        recorded = WorkflowHistory.from_json(str(uuid.uuid4()), text)
    except Exception as error:  # the SDK raises errors of several libraries
        raise ValueError(f"this is not a history that `perdure history --temporal` has written: {error}") from error
    begun = recorded.events[0].workflow_execution_started_event_attributes if recorded.events else None
    if begun is None or begun.workflow_type.name != flow.name:
        of = f"of a run of `{begun.workflow_type.name}`" if begun and begun.workflow_type.name else "without its start"
        raise ValueError(f"this is a history {of}, not of the flow `{flow.name}`")
    with ThreadPoolExecutor(1) as thread:  # this one may have an event loop already
        thread.submit(asyncio.run, _replayed(flow, recorded)).result()


async def _replayed(flow: Flow[..., Any], history: WorkflowHistory) -> None:
    replayer = Replayer(workflows=[flow.workflow], workflow_runner=UnsandboxedWorkflowRunner())
    await replayer.replay_workflow(history)
