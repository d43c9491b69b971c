"""The loops between watching and writing: one inbox and one pass at a time per run, one heap of timers, recovery, effects.

This room has no decisions of its own: what happens is decided by `engine` and `language`; what a pod looks like by `runtime`.
"""
