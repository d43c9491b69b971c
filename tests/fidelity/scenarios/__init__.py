"""What is played on both servers, by subject."""

from fidelity.scenarios import (
    activities,
    children,
    closing,
    listing,
    nexus,
    scheduling,
    standalone,
    starting,
    system,
    tasks,
    telling,
)

__all__ = [
    "activities",
    "children",
    "closing",
    "listing",
    "nexus",
    "scheduling",
    "standalone",
    "starting",
    "system",
    "tasks",
    "telling",
]
