"""The YAML language: steps and expressions, decided by a pure interpreter."""
