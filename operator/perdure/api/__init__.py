"""The API: every kind of `perdure.dev/v1alpha1` as pydantic models (`kinds`), and the CRDs generated from them.

The modules with labels, names, reasons, policies, phases, and times need no pydantic, so that commands start quickly.
"""
