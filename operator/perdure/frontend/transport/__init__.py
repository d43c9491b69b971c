"""How calls reach the frontend: gRPC, TLS, authentication, authorization, limits, and the audit log."""
