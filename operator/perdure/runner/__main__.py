"""Perform the work that the file `$PERDURE_WORK_FILE` describes, as an activity."""

import os
import sys
from pathlib import Path

import orjson

from perdure import activity
from perdure.runner.expressions import DeferredExpressions
from perdure.runner.http import send
from perdure.runner.resource import act


def main() -> None:
    """Read the work, perform it, and report the result. Send heartbeats if the activity has a heartbeat timeout."""
    work = orjson.loads(Path(os.environ["PERDURE_WORK_FILE"]).read_bytes())
    expressions = DeferredExpressions(activity.input(), activity.info())

    async def perform() -> object:
        try:
            if "http" in work:
                return await send(work["http"], expressions, os.environ)
            return await act(work["resource"], expressions, os.environ)
        except activity.ApplicationError as error:
            sys.stderr.write(f"{error.message}\n")  # for readers of the pod's log
            # Not raised, because the stack trace of the runner does not help the user.
            activity.fail(
                error.message,
                type=error.type,
                details=error.details,
                non_retryable=error.non_retryable,
                next_retry_delay=error.next_retry_delay,
            )

    activity.run(perform, auto_heartbeat=True)


if __name__ == "__main__":
    main()
