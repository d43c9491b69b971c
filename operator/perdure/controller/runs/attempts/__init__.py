"""The attempts of runs whose activities run in pods. `attempts` assembles the parts, and applies the effects on pods."""
