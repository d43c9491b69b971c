"""Converts manifests of other workflow systems to those of Perdure. Pure: its input and output are texts and maps."""
