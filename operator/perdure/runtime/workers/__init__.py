"""Workers of Temporal SDKs that the operator runs: their versions as Deployments, and the plan of what to change. Pure."""
