"""Large payloads: stored in Payload objects, and inlined for readers that cannot follow a reference."""
