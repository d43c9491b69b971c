"""The work queue: typed keys, one worker per key at a time, timers, and fairness between namespaces."""
