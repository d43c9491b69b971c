"""The programs that need an extra: `perdure-operator` and `perdure-console`. Without it, they say how to install it."""

from perdure.extras import MissingExtraError, required


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
