"""Runs as users see them: their steps, histories, open work, and failures, as lines, as a graph, or as data. Pure."""
