"""The attempts of runs whose activities run in pods: inputs from the pods, and effects on them.

Pods are seen by the watch, and read from the API server where a deadline is due: a watch may lag. What is done comes after the
commit, and may be done again after a crash: the names of pods are locks.
"""
