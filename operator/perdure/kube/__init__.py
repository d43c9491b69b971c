"""The only package of the operator and the command that communicates with the API server."""
