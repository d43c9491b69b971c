"""Code decides, pods do the work: each activity is one of the Workflow in checksums.yaml, and runs in its own pod."""

import asyncio
from datetime import timedelta

from temporalio import workflow


@workflow.defn
class ChecksumsWorkflow:
    """Computes the checksums of texts, all at the same time."""

    @workflow.run
    async def run(self, texts: list[str]) -> dict[str, str]:
        """The checksum of each text. Retries, timeouts and history are those of any activity."""
        sums = await asyncio.gather(
            *[
                workflow.execute_activity(
                    "checksum",
                    text,
                    result_type=str,
                    task_queue="pods/checksums",
                    start_to_close_timeout=timedelta(minutes=2),
                )
                for text in texts
            ]
        )
        return dict(zip(texts, sums, strict=True))
