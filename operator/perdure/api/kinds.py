"""The resource names of all kinds. This module imports no models, so that commands start quickly."""

from typing import Final

PLURALS: Final = frozenset(
    {
        "workflows",
        "workflowruns",
        "schedules",
        "retrypolicies",
        "workflowlimits",
        "operations",
        "deadletters",
        "historysegments",
        "payloads",
    }
)
"""The resource names of all kinds of the group."""
