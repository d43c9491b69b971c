"""The imperative shell: watch events wake objects, each object is reconciled by one task at a time.

    watch events ─▶ informers ─▶ queue of typed keys ─▶ reconcile ─▶ a run, a Schedule, an Operation, …

This room has no decisions of its own: `engine`, `language` and `schedule` decide what happens; `runtime` builds pods.
"""
