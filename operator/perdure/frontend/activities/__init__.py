"""RPCs about activities: of workflows, and standalone ones."""
