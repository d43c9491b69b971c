"""Nexus: endpoints, operations, calls of handlers, and the workers that handle them."""
