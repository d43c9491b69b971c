"""Runs `nightly` of a day."""

from datetime import date

import nightly

nightly.nightly(["eu", "us", "asia"], date(2026, 11, 27))
