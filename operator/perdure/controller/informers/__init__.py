"""What tells this process which objects exist: watches, the first lists, and the resync."""
