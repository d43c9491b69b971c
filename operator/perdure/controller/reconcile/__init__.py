"""The shared parts of all reconcilers: the reconcile loop, the inbox of requests, and the compare-and-swap write."""
