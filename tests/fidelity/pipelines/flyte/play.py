"""Plays the five pipelines with Flyte 2 in this process. Nobody can approve there: conditions need Flyte's services."""

import json
import os
from dataclasses import asdict
from datetime import datetime
from typing import Any

import approval
import files
import flyte
import nightly
import sweep
import trip


def run(task: Any, *arguments: Any) -> Any:
    """Run a task in this process, and return its output."""
    done = flyte.with_runcontext(mode="local").run(task, *arguments)
    return done.outputs()[0]


def main() -> None:
    """Print what each pipeline returns."""
    flyte.init()
    played: dict[str, Any] = {
        "nightly": run(nightly.nightly, ["eu", "us", "asia"], datetime.fromisoformat("2026-11-27T02:00:00+00:00")),
        "sweep": asdict(run(sweep.sweep, [0.01, 0.1, 1.0, 5.0])),
        "files": asdict(run(files.words, "in")),
        "trip": run(trip.plan, "rome"),
    }
    os.environ["WORK_FAILS"] = "book car"
    try:
        run(trip.plan, "oslo")
    except Exception as error:
        played["undone"] = str(error)
    os.environ["WORK_FAILS"] = ""
    try:
        played["approval"] = run(approval.release, "v7")
    except Exception as error:
        played["approval"] = f"{type(error).__name__}: {error}"
    print(json.dumps(played))


if __name__ == "__main__":
    main()
