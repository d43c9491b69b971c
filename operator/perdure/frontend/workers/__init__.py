"""RPCs about workers and about task queues."""
