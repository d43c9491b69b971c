"""Worker deployments: their versions, and which version gets a task."""
