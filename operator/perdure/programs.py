"""The programs that need an extra, as `perdure-operator` does. Without it, they say how to install it."""

from importlib import import_module

from perdure.extras import MissingExtraError, required


def operator() -> None:
    """Run `perdure-operator`.

    Raises:
        SystemExit: The extra is not installed, or the operator has ended.
    """
    _run("perdure-operator", "operator", "perdure.handlers.main")


def frontend() -> None:
    """Run `perdure-frontend`, the frontend as a process of its own.

    Raises:
        SystemExit: The extra is not installed, or the frontend has ended.
    """
    _run("perdure-frontend", "operator", "perdure.frontend.apart.main")


def console() -> None:
    """Run `perdure-console`, the server in a pod.

    Raises:
        SystemExit: The extra is not installed.
    """
    _run("perdure-console", "console", "perdure.console.server")


def _run(program: str, extra: str, module: str) -> None:
    """Call `main` of a module that an extra may be missing for."""
    try:
        with required(extra):
            main = import_module(module).main
    except MissingExtraError as error:
        raise SystemExit(f"{program}: {error}") from error
    main()
