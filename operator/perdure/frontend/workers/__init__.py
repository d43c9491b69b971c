"""Which workers poll, and what their task queues hold."""
