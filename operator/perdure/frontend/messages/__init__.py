"""Temporal's messages and Perdure's JSON: payloads, failures, histories, tokens, and the values of fields."""
