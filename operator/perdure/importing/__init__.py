"""Manifests of other workflow systems, converted to Perdure's. Pure: texts and maps in, maps out."""
