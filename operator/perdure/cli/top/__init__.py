"""Reads and formats the data for `perdure top`."""
