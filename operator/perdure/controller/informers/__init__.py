"""What the operator knows of the cluster: informers take watch events and lists, update the index, and enqueue keys."""
