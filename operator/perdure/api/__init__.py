"""The API: every kind of `perdure.dev/v1alpha1` as pydantic models (`kinds`), and the CRDs generated from them.

The words of the API need no pydantic, so that commands start quickly: labels, names, reasons, policies, phases, times.
"""
