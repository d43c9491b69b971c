"""Artifacts, in containers of Perdure.

Input and output artifacts are handled in the pod of their activity; exports and deletions have pods of their own.
"""
