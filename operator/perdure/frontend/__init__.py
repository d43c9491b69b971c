"""The frontend: speaks Temporal's gRPC API to Temporal SDKs, on runs that are WorkflowRuns like all others."""
