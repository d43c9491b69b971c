"""Runs in lists and in the archive: the record of a run, the filters that compare it, and the rows that are stored. Pure."""
