"""Connects commands to the Temporal frontend, authenticates, and calls its HTTP API."""
