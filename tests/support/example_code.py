"""The workers of the examples, imported as they are."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from support.manuals import REPOSITORY


@contextmanager
def example_module(name: str, module: str) -> Iterator[ModuleType]:
    """A module of an example, among its neighbors: the SDK's sandbox finds them by their names.

    Afterwards they are forgotten: several examples have a module ``app``.

    :param name: the folder of the example in examples/
    """
    folder = REPOSITORY / "examples" / name
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module(module)
    finally:
        sys.path.remove(str(folder))
        for each in [key for key, loaded in sys.modules.items() if is_from(loaded, folder)]:
            del sys.modules[each]


def is_from(module: ModuleType, folder: Path) -> bool:
    """Whether a module was read from a folder."""
    source = getattr(module, "__file__", None)
    return source is not None and Path(source).parent == folder
