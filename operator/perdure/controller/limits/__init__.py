"""WorkflowLimits: runs and activities acquire them before they start, and release them when they have ended."""
