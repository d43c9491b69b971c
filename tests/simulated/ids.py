"""IDs that a seed decides."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random


@contextmanager
def seeded_ids(random: Random) -> Iterator[None]:
    """Have ``uuid.uuid4`` draw from a source of chance within the block, so that a seed does the same in every process."""
    original = uuid.uuid4
    uuid.uuid4 = lambda: uuid.UUID(int=random.getrandbits(128), version=4)
    try:
        yield
    finally:
        uuid.uuid4 = original
