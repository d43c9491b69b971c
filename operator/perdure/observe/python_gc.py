"""Settings of the garbage collector in the operator's process."""

import gc


def settle() -> None:
    """Exclude all current objects from collection, and look for cycles less often: decisions create many objects, but few cycles.

    Call it once everything is loaded.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
