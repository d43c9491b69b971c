"""The engine: pure functions from state and inputs to events, commands and new state.

Nothing in here does input or output, reads a clock, or depends on YAML, kopf or Kubernetes.
"""
