"""Perdure: durable workflows with nothing but Kubernetes."""

__version__ = "0.1.0"
