"""Temporal's HTTP API: the RPCs as JSON, at the paths that Temporal's API gives them."""
