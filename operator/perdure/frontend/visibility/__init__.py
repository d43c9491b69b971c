"""Lists and counts: the index of runs, the query language, and search attributes."""
