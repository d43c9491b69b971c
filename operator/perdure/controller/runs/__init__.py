"""One WorkflowRun: how it starts, its reconciler, its stored record, its attempts and its effects."""
