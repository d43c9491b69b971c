"""One Schedule: its reconciler, its runs, and its Events."""
