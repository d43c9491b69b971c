"""Imports that happen when a module is first used, for commands that must start quickly.

`perdure --help`, `perdure list -o json`, and a command that finds no cluster need neither the models of the API nor rich, which
take longer to import than everything else together. A module names what it may need at its top, like all its imports, and it
is loaded by the first access to one of its attributes:

    with lazily():
        from perdure.view import tables

The statement must import modules: `from perdure.view.tables import webhooks` would need the module immediately. It is the
`lazy import` of Python 3.15 (PEP 810); `importlib.util.LazyLoader` would load a module that is imported lazily twice. An error in
the module appears at its first use, so everything else is imported as usual. Of two threads that use it first at the same time,
one waits until the other has loaded it.

An operator imports parts that are not always enabled in the same way: it saves their memory.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import Any, Final

_BEFORE: Final = frozenset({"__class__", "__dict__", "__file__", "__loader__", "__name__", "__package__", "__spec__"})
"""What a module has before it is executed. The import system and `inspect.getmodule` read it of every module."""


class _Loading:
    """The execution of a module."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.has_begun = False


class _LazyModule(ModuleType):
    """A module that has not been executed yet."""

    def __getattribute__(self, name: str) -> Any:
        """Execute the module for anything that its code defines."""
        if name in _BEFORE:
            return super().__getattribute__(name)
        spec = self.__spec__
        assert spec is not None
        loading: _Loading = spec.loader_state
        with loading.lock:  # a thread that has waited for it finds the module loaded
            if not loading.has_begun:
                loading.has_begun = True
                assert spec.loader is not None
                try:
                    spec.loader.exec_module(self)
                finally:
                    self.__class__ = ModuleType  # type: ignore[assignment]
        return ModuleType.__getattribute__(self, name)


class _LazyLoader:
    """Creates modules, and postpones their execution."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create a module; None for an ordinary one."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Let the first access to an attribute execute the module."""
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        module.__spec__.loader_state = _Loading()
        module.__class__ = _LazyModule


class _LazyFinder:
    """Finds modules as usual, for the loader above."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of a module; None if there is none."""
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _LazyLoader(spec.loader)  # type: ignore[assignment]
        return spec


@contextmanager
def lazily() -> Iterator[None]:
    """Postpone the execution of the modules that the block imports until they are used.

    Packages around them are executed immediately, so they should not import other modules when they are imported.
    """
    finder = _LazyFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
