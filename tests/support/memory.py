"""Measures how much memory is allocated, or left by an action."""

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


def traced() -> int:
    """Bytes that are in use, without garbage that waits to be collected, while memory is traced."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
