"""Pure builders and readers: an attempt becomes a Pod and a Lease; a Pod and a Lease become an outcome."""
