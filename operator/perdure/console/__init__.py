"""Web pages that complement Temporal's Web UI: the step graph of a run, logs of attempts, limits, breakers, and the fleet."""
