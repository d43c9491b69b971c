"""The logic of Schedules: start times, overlapping runs, failed runs, and missed starts. Pure: time is an argument.

``times`` computes the start times (from those of ``calendar``); ``step`` computes the next state and the runs to
start. Nothing here reads a clock or calls the API server.
"""
