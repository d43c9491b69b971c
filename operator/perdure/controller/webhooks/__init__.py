"""Webhooks: signed HTTP requests that start or signal runs."""
