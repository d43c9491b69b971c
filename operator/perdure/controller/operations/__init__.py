"""Operations: the targeted run, the request to that run, and the answer in the status."""
