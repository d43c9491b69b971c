"""Code decides, pods do the work: each activity is one of the Workflow in checksums.yaml, done by a pod of its own."""

import asyncio
from datetime import timedelta

from temporalio import workflow


@workflow.defn
class ChecksumsWorkflow:
    """Has the checksums of texts taken, all at the same time."""

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
