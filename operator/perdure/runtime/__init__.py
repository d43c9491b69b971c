"""Builders and readers of Kubernetes objects: what the operator writes to the API server, and what it learns from there. Pure.

An attempt becomes a Pod and a Lease; a Pod and a Lease become an outcome. Histories become HistorySegments, and large payloads
become Payloads. The modules have the names of objects, or of the parts of a run's object (`chains`, `commits`,
`status_encoding`).
"""
