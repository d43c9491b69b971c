"""Temporal's HTTP API: the RPCs as JSON, at the paths from Temporal's API."""
