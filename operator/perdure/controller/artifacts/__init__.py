"""The artifacts of runs: what needs them, and their deletion when nothing does."""
