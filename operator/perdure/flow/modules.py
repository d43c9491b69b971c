"""Loads the module with flows that a command or a container names: a file, or a dotted name."""

from __future__ import annotations

import importlib
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


def load_in_container(target: str) -> ModuleType:
    """Import the module of a container, whose log has what `logging` gets, from level INFO, unless the module has set that up.

    Raises:
        ImportError: The module does not exist, or cannot be imported.
    """
    module = load(target)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return module


def load(target: str) -> ModuleType:
    """Import a module.

    Args:
        target: A path such as `flows/etl.py`, whose folder joins `sys.path`; or a dotted name such as `shop.etl`, which is
            also searched in the working directory.

    Raises:
        ImportError: The module does not exist, or cannot be imported.
    """
    path = Path(target)
    is_file = path.suffix == ".py"
    if is_file and not path.is_file():
        raise ImportError(f"there is no file {target}")
    folder = str(path.resolve().parent if is_file else Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(path.stem if is_file else target)
