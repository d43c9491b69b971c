"""Web pages that complement Temporal's Web UI, with what it does not show.

These are runs with the graph of their steps and the logs of their attempts, Schedules, dead letters, limits, circuit breakers,
and the fleet; forms start runs and request something of them.
"""
