"""Plays the five pipelines with Metaflow: each is a program with its own processes."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from metaflow import Runner

HERE = Path(__file__).parent


def run(file: str, **parameters: Any) -> Any:
    """Run a flow; return its data, or None if it failed."""
    with Runner(str(HERE / file), show_output=False).run(max_workers=4, **parameters) as done:
        return done.run.data if done.status == "successful" else None


def main() -> None:
    """Print what each pipeline returns."""
    played: dict[str, Any] = {
        "nightly": Runner(str(HERE / "nightly.py"), show_output=False).run(day="2026-11-27").run["load"].task.data.rows,
        "sweep": asdict(run("sweep.py", rates=[0.01, 0.1, 1.0, 5.0]).best),
        "files": asdict(run("files.py", folder="in").words),
        "trip": run("trip.py", trip="rome").bookings,
    }
    image = run("approval.py", version="v7").image
    played["approval"] = run("approval_decided.py", image=image, approved=True).result
    played["late"] = run("approval_decided.py", image=image, approved=False).result
    os.environ["WORK_FAILS"] = "book car"
    assert run("trip.py", trip="oslo") is None
    print(json.dumps(played))


if __name__ == "__main__":
    main()
