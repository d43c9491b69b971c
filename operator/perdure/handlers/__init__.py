"""Thin kopf functions: watching, login, lifecycle, probes."""
