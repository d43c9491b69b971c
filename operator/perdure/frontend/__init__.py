"""The frontend serves Temporal's API over gRPC and HTTP. The runs that Temporal SDKs start are WorkflowRuns like all others."""
