"""Task queues: offers of work wait in them, and workers poll them."""
