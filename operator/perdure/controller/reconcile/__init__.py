"""What the reconcilers of all kinds share: the reconcile loop, the inbox of requests, and the compare-and-swap write."""
