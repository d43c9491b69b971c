"""The scenarios to run on both servers, by subject."""

from fidelity.scenarios import (
    activities,
    batching,
    children,
    closing,
    listing,
    nexus,
    scheduling,
    standalone,
    standalone_nexus,
    starting,
    system,
    tasks,
    versioning,
    workflow_requests,
)

__all__ = [
    "activities",
    "batching",
    "children",
    "closing",
    "listing",
    "nexus",
    "scheduling",
    "standalone",
    "standalone_nexus",
    "starting",
    "system",
    "tasks",
    "versioning",
    "workflow_requests",
]
