"""How the operator's process has its memory looked through."""

import gc


def settle() -> None:
    """Take what is there by now as there for good, and look for cycles less often: decisions make much, and few cycles.

    To be called once everything is loaded.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
