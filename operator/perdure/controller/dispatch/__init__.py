"""The objects that this process works on: changes wake them, requests reach them, and the queue reconciles them."""
