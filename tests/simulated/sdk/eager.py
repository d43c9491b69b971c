"""Tasks that operators hand out with their responses, to workers in the same process as the caller."""

import asyncio
from dataclasses import dataclass, field

from temporalio.api.workflowservice.v1 import PollActivityTaskQueueResponse, PollWorkflowTaskQueueResponse


@dataclass(frozen=True, slots=True)
class EagerTasks:
    """The tasks that wait for a free slot. Some wait until they have timed out, and are executed in vain."""

    workflow: asyncio.Queue[PollWorkflowTaskQueueResponse] = field(default_factory=asyncio.Queue)
    activity: asyncio.Queue[PollActivityTaskQueueResponse] = field(default_factory=asyncio.Queue)
