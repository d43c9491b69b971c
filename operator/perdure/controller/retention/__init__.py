"""Removal of finished runs: by their TTL, and by the limits of a namespace."""
