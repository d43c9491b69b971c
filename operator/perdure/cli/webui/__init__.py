"""The Web UI on a laptop: a proxy that only the user's own browser can use."""
