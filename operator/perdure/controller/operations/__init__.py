"""Operations: which run each one targets, the request to that run, and the answer in the status."""
