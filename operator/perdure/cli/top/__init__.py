"""What `perdure top` reads and shows."""
