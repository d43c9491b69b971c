"""The engine: pure functions from state and inputs to events, commands and new state.

Nothing in here does input or output, reads a clock, or knows of YAML, kopf or Kubernetes.
"""
