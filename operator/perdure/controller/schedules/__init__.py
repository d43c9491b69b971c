"""One Schedule: its reconciler, the runs that it starts, and what it reports."""
