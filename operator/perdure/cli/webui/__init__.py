"""The Web UI on a laptop: a port-forward to it, a token for it, and a proxy that only the user's own browser can use."""
