"""Let several operators serve SDKs together: each forwards RPCs to the member of the fleet that can handle them."""
