"""Several operators that serve SDKs together: each forwards what it is asked to the member of the fleet that knows the answer."""
