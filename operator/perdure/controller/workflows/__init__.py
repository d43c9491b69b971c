"""Workflows: their definitions for runs, and their condition `Ready`.

A definition is found, completed with the defaults of its namespace, compiled, and stored as a revision.
"""
