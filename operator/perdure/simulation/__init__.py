"""Simulation: the operator itself runs scenarios, on an in-memory cluster and in virtual time.

A scenario defines how pods and children end, and which requests users make. The operator does the rest, as on a real cluster.
"""
