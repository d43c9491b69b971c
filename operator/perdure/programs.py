"""The programs that need an extra, as `perdure-operator` does. Without it, they say how to install it."""

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


def frontend() -> None:
    """Run `perdure-frontend`, the frontend as a process of its own.

    Raises:
        SystemExit: The extra is not installed, or the frontend has ended.
    """
    try:
        with required("operator"):
            from perdure.frontend.apart.main import main  # noqa: PLC0415 - the extra may be missing
    except MissingExtraError as error:
        raise SystemExit(f"perdure-frontend: {error}") from error
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
