"""Runs `nightly` of a day in this process."""

from datetime import UTC, datetime

import flyte
import nightly

flyte.init()
flyte.with_runcontext(mode="local").run(nightly.nightly, ["eu", "us", "asia"], datetime(2026, 11, 27, 2, tzinfo=UTC))
