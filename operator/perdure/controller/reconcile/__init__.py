"""The shared parts of all reconcilers.

The reconcile loop with its inbox of requests, the compare-and-swap write, objects that a newer version has written, and temporary
refusals of the API server.
"""
