"""The frontend as a process of its own: it serves Temporal's API, and forwards each RPC to the operator that can handle it."""
