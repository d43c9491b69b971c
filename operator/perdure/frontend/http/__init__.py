"""Temporal's HTTP API: the RPCs as JSON, at the paths from Temporal's API.

Next to it: calls of Nexus handlers, Webhooks, and the WorkflowRuns of the archive.
"""
