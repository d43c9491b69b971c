"""Lists and counts: the index of runs, the archive, the query language, and search attributes."""
