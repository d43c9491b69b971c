"""The API: every kind of `perdure.dev` as pydantic models (`kinds`), and the CRDs generated from them.

The modules with labels, names, reasons, policies, phases, times, pods, and plain JSON need no pydantic, so that commands start
quickly.
"""
