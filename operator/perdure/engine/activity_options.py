"""What a client may change of an open activity."""

from datetime import timedelta
from typing import Any

import msgspec

from perdure.engine.retry import RetryPolicy


class OpenActivityOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """All of it; each has the name of the activity's own field."""

    task_queue: str
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    retry_policy: RetryPolicy = RetryPolicy()
    priority: Any = None
