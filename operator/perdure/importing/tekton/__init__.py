"""Converts manifests of Tekton."""
