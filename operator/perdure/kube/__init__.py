"""The only room that speaks to the API server."""
