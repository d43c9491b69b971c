"""Measures how much memory an action leaves allocated."""

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def bounded_memory(limit: int) -> Iterator[None]:
    """Check that the block leaves at most a number of additional bytes allocated."""
    gc.collect()
    tracemalloc.start()
    try:
        yield
        gc.collect()
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert left <= limit, f"{left:,} bytes are left"
