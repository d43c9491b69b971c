"""Plays the five pipelines with Prefect, with the server that it starts for the process."""

import asyncio
import json
import os
import threading
import time
from dataclasses import asdict
from datetime import date

import approval
import files
import nightly
import sweep
import trip
from prefect import get_client, resume_flow_run
from prefect.client.schemas.filters import FlowRunFilter


def approve(value: bool) -> None:
    """Approve the flow that is paused."""

    async def found() -> list[object]:
        async with get_client() as client:
            paused = FlowRunFilter.model_validate({"state": {"type": {"any_": ["PAUSED"]}}})
            return [run.id for run in await client.read_flow_runs(flow_run_filter=paused)]

    while not (runs := asyncio.run(found())):
        time.sleep(0.5)
    resume_flow_run(runs[0], run_input={"value": value})


def main() -> None:
    """Print what each pipeline returns."""
    played = {
        "nightly": nightly.nightly(["eu", "us", "asia"], date(2026, 11, 27)),
        "sweep": asdict(sweep.sweep([0.01, 0.1, 1.0, 5.0])),
        "late": approval.release("v7", timeout=2),
        "files": asdict(files.words("in")),
        "trip": trip.plan("rome"),
    }
    approver = threading.Thread(target=approve, args=[True])
    approver.start()
    played["approval"] = approval.release("v7")
    approver.join()
    os.environ["WORK_FAILS"] = "book car"
    try:
        trip.plan("oslo")
    except ValueError as error:
        played["undone"] = str(error)
    print(json.dumps(played))


if __name__ == "__main__":
    main()
