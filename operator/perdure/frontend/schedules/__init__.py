"""RPCs about schedules."""
