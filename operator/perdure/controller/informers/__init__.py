"""How this process learns which objects exist: watches, the first lists, and the resync."""
