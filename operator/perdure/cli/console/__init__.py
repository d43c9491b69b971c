"""Web pages that show what Temporal's Web UI cannot: the step graph of a run, logs of attempts, limits, breakers, the fleet."""
