"""The only package that communicates with the API server."""
