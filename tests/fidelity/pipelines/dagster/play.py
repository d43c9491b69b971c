"""Plays the five pipelines with Dagster: `execute_in_process`, and what sensors and schedules would request."""

import json
import os
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import approval
import dagster as dg
import files
import nightly
import sweep
import trip


def requested(definitions: dg.Definitions, sensor: dg.SensorDefinition, instance: dg.DagsterInstance) -> dict[str, Any]:
    """Return the configuration of the run that a sensor requests."""
    with dg.build_sensor_context(instance, repository_def=definitions.get_repository_def()) as context:
        (request,) = sensor.evaluate_tick(context).run_requests or []
    return dict(request.run_config)


def main() -> None:
    """Print what each pipeline returns."""
    instance = dg.DagsterInstance.ephemeral()
    context = dg.build_schedule_context(scheduled_execution_time=datetime(2026, 11, 28, 2, tzinfo=UTC))
    (tick,) = nightly.schedule.evaluate_tick(context).run_requests or []
    rates = {"rates": [0.01, 0.1, 1.0, 5.0], "epochs": 2, "target": 0.9}
    played: dict[str, Any] = {
        "nightly": nightly.nightly.execute_in_process(partition_key=tick.partition_key).output_for_node("load"),
        "sweep": asdict(sweep.job.execute_in_process(input_values=rates).output_value()),
        "files": asdict(files.job.execute_in_process(input_values={"folder": "in"}).output_value()),
        "trip": trip.job.execute_in_process(input_values={"trip": "rome"}).output_for_node("car"),
    }
    inputs = {"ops": {"build": {"inputs": {"version": "v7"}}}}
    prepared = approval.prepare.execute_in_process(run_config=inputs, instance=instance)
    approval.DECISIONS.mkdir(exist_ok=True)
    Path(approval.DECISIONS, prepared.run_id).write_text("yes", encoding="utf-8")
    config = requested(approval.definitions, approval.approvals, instance)
    played["approval"] = approval.finish.execute_in_process(run_config=config).output_for_node("decide")
    os.environ["WORK_FAILS"] = "book car"
    failed = trip.job.execute_in_process(
        run_config={"inputs": {"trip": "oslo"}}, instance=instance, raise_on_error=False
    )
    with dg.build_run_status_sensor_context(
        "failed",
        failed.get_run_failure_event(),
        instance,
        failed.dagster_run,
        repository_def=trip.definitions.get_repository_def(),
    ).for_run_failure() as context:
        request = trip.failed(context)
    trip.undo.execute_in_process(run_config=request.run_config)
    played["undone"] = "the sensor has requested it"
    print(json.dumps(played))


if __name__ == "__main__":
    main()
