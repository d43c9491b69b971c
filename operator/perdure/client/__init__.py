"""The cluster as its users reach it: requests with their own permissions; every error becomes one sentence with the fix.

Both the command line and the console use it. What is slow to import is imported lazily, as `perdure.cli` says.
"""
