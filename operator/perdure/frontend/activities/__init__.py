"""RPCs about activities, both those of workflows and standalone ones."""
