"""The Temporal frontend: how commands reach it, authenticate, and call its HTTP API."""
