"""The attempts of runs whose activities are done by pods: what their pods have shown, and what is done with the pods.

Pods are seen by the watch, and read from the API server where a deadline is due: a watch may lag. What is done comes after the
commit, and may be done again after a crash: the names of pods are locks.
"""
