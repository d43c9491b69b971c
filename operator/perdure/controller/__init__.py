"""The imperative shell: watch events wake objects, and one task at a time reconciles each object.

    watch events ─▶ informers ─▶ dispatch ─▶ queue of typed keys ─▶ reconcile ─▶ a run, a Schedule, an Operation, …

This package makes no decisions itself: `engine`, `language` and `schedule` decide; `runtime` builds pods.
"""
