"""Builders and readers of Kubernetes objects: what the operator writes to the API server, and what it learns from there. Pure.

An attempt becomes a Pod and a Lease; a Pod and a Lease become an outcome. Histories become HistorySegments, and large payloads
become Payloads. A module has the name of its objects, of a part of a run's object (`chains`, `commits`, `status_encoding`), or of
what it decides about objects (`circuits`, `retention`, `upgrades`).
"""
