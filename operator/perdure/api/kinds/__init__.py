"""The kinds of Perdure as pydantic models, one module per kind, and the parts that they share."""
