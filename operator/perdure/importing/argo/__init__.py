"""Converts manifests of Argo Workflows."""
