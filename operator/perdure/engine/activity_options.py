"""The options of an open activity that a client may change."""

from datetime import timedelta
from typing import Any

from perdure.api.stored_struct import StoredStruct
from perdure.engine.retry import RetryPolicy


class OpenActivityOptions(StoredStruct, frozen=True, kw_only=True):
    """The options that a client may change, named like the fields of the activity."""

    task_queue: str
    schedule_to_close_timeout: timedelta | None = None
    schedule_to_start_timeout: timedelta | None = None
    start_to_close_timeout: timedelta | None = None
    heartbeat_timeout: timedelta | None = None
    retry_policy: RetryPolicy = RetryPolicy()
    priority: Any = None
