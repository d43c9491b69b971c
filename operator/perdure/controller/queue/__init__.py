"""The work queue: typed keys, one worker for each key at a time, timers, and fairness between namespaces."""
