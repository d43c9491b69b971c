"""Runs `nightly` of a day with a process for each op, or, with an argument, again from where the last run has ended."""

import sys

import dagster as dg
from nightly import nightly

if __name__ == "__main__":
    with dg.DagsterInstance.get() as instance:
        options = None
        if len(sys.argv) > 1:
            (last,) = instance.get_runs(limit=1)
            instance.report_run_failed(last)
            options = dg.ReexecutionOptions.from_failure(last.run_id, instance)
        job = dg.reconstructable(nightly)
        tags = {"dagster/partition": "2026-11-27"}
        with dg.execute_job(job, instance, tags=tags, reexecution_options=options) as result:
            assert result.success
