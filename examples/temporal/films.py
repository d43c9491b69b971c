"""Activities that are stopped when nobody waits for them any more, and clean up: asyncio.wait_for, and wait_condition."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from temporalio import activity, workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

LONG = timedelta(hours=1)
BEAT = timedelta(seconds=2)
"""The response to a heartbeat reports a cancellation to the activity, and the SDK sends one in time for this timeout."""
CLEANS_UP = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
"""How to wait until a cancelled activity has cleaned up."""


@contextmanager
def unfinished(folder: str, film: str) -> Iterator[Path]:
    """A file that exists only while an activity uses it."""
    part = Path(folder, f"{film}.part")
    part.touch()
    try:
        yield part
    finally:
        part.unlink()


@activity.defn
async def render(film: str, folder: str, frames: int) -> str:
    """Render a film frame by frame."""
    with unfinished(folder, film):
        for frame in range(frames):
            activity.heartbeat(frame)
            await asyncio.sleep(0.1)
    return f"{film} is ready"


@activity.defn
async def show(film: str, folder: str) -> None:
    """Show a preview until it is cancelled."""
    with unfinished(folder, film):
        while True:
            activity.heartbeat()
            await asyncio.sleep(0.1)


@workflow.defn
class RenderWorkflow:
    """Renders a film, and waits for it for a limited time."""

    @workflow.run
    async def run(self, film: str, folder: str, frames: int, patience: float) -> str:
        """Wait for the film; stop it if it takes too long."""
        rendering = workflow.start_activity(
            render,
            args=[film, folder, frames],
            start_to_close_timeout=LONG,
            heartbeat_timeout=BEAT,
            cancellation_type=CLEANS_UP,
        )
        try:
            return await asyncio.wait_for(rendering, patience)
        except (TimeoutError, ActivityError) as error:  # the latter: the activity reports that it has stopped
            if isinstance(error, ActivityError) and not is_cancelled_exception(error):
                raise
            return f"{film} takes too long"


@workflow.defn
class ReviewWorkflow:
    """Shows a preview until someone reviews it, or a timeout."""

    def __init__(self) -> None:
        """Nobody has looked yet."""
        self.verdict = ""

    @workflow.run
    async def run(self, film: str, folder: str, patience: float) -> str:
        """Wait for the verdict; then nobody needs the preview any more."""
        preview = workflow.start_activity(
            show,
            args=[film, folder],
            start_to_close_timeout=LONG,
            heartbeat_timeout=BEAT,
            cancellation_type=CLEANS_UP,
        )
        try:
            await workflow.wait_condition(lambda: bool(self.verdict), timeout=patience)
        except TimeoutError:
            self.verdict = "nobody has looked at it"
        preview.cancel()
        with suppress(ActivityError):
            await preview
        return f"{film}: {self.verdict}"

    @workflow.signal
    def decide(self, verdict: str) -> None:
        """Say what you think of it."""
        self.verdict = verdict
