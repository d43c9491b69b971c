"""The attempts of runs whose activities run in pods: inputs from the pods, and effects on them.

The watch reports pods. When a deadline is due, pods are read from the API server, because a watch may lag. Effects follow the
commit, and can be repeated after a crash, because the names of pods are locks.
"""
