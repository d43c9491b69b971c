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


def operator() -> None:
    """Run `perdure-operator`.

    Raises:
        SystemExit: The extra is not installed, or the operator has ended.
    """
    try:
        with required("operator"):
            from perdure.handlers.main import main  # noqa: PLC0415 - the extra may be missing
    except MissingExtraError as error:
        raise SystemExit(f"perdure-operator: {error}") from error
    main()


def console() -> None:
    """Run `perdure-console`, the server in a pod.

    Raises:
        SystemExit: The extra is not installed.
    """
    try:
        with required("console"):
            from perdure.console.server import main  # noqa: PLC0415 - the extra may be missing
    except MissingExtraError as error:
        raise SystemExit(f"perdure-console: {error}") from error
    main()
