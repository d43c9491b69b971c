"""WorkflowLimits: runs and activities take them before they start, and release them when they have ended."""
