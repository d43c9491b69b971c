"""One WorkflowRun: its start, its reconciler, its stored record, its attempts and its effects."""
