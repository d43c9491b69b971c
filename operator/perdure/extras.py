"""Extras: `pip install perdure` brings what users need; `perdure[operator]` and others add what only some need."""

from collections.abc import Iterator
from contextlib import contextmanager


class MissingExtraError(ModuleNotFoundError):
    """A package is not installed that an extra brings. The message names the extra."""


@contextmanager
def required(extra: str) -> Iterator[None]:
    """Name the extra in the error if the block imports a package that is not installed.

    Args:
        extra: Its name, as in `pip install 'perdure[console]'`.

    Raises:
        MissingExtraError: A package is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        message = f"{error}; install it with `pip install 'perdure[{extra}]'`"
        raise MissingExtraError(message, name=error.name) from error
