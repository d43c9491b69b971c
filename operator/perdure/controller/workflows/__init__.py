"""Workflows: definitions are found and compiled for runs, and checked for the condition `Ready`."""
