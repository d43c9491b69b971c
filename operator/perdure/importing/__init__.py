"""Converts manifests of other workflow systems to those of Perdure. Pure: its input is texts and maps, its output maps."""
