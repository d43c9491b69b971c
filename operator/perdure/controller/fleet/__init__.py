"""A fleet: operators that share the work. Each member has a Lease, and owns the shards that rendezvous hashing assigns to it."""
