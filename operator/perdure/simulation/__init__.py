"""Simulation: the operator itself plays scenarios, on a cluster in memory and in virtual time.

A scenario says how pods and children end, and what people ask for; everything else is done by the operator, as on a cluster.
"""
