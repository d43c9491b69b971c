"""Temporal's messages and Perdure's JSON: payloads, failures, histories, and the values of fields."""
