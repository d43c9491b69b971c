"""`make test-python`: the tests that need nothing but Python, on the image's version of Python.

The others run on the oldest version that Perdure supports, which developers and the machine have. `make test` runs those of the
rooms that the version matters most for (`--short`), and `make test-all` all of them.
"""

import argparse
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster import commands, imagepython, projectimage
from cluster.debian import PYTHON
from cluster.errors import ClusterError
from cluster.paths import REPOSITORY, Cache
from cluster.store import ensure_entry, fingerprint
from release import packages

SHORT = ("tests/unit/activity", "tests/unit/engine", "tests/unit/handlers", "tests/unit/kube", "tests/unit/schedule")
"""Decoding, deep recursion, dates, and the library for activities."""
LONG = (
    *("tests/unit", "tests/rpc", "tests/simulated", "tests/fidelity"),
    *(f"--ignore=tests/unit/{each}" for each in ("chart", "docs", "hack", "postgres", "reference")),
)
"""All but those of the scripts of this repository, which need git and other programs."""


def prefix(cache: Cache, folders: Sequence[Path]) -> list[str]:
    """Return what to write before a command that needs this version of Python: nothing where uv finds or downloads it."""
    return [] if projectimage.docker_with_registry(cache) else imagepython.prefix(cache, folders)


def environment(cache: Cache) -> Path:
    """Return the folder with a virtual environment of the locked dependencies; nothing of them is compiled."""
    before = prefix(cache, [cache.root])
    key = fingerprint(files=[REPOSITORY / "uv.lock"], words=[PYTHON, *before])

    def make(draft: Path) -> None:
        create = (
            [*before, imagepython.NAME, "-m", "venv", "--without-pip"]
            if before
            else [packages.uv(), "venv", "--python", PYTHON]
        )
        commands.run_logged([*create, str(draft)], cache.logs / "image-tests.log", folder=draft.parent)
        locked = packages.requirements(
            REPOSITORY, packages.OPERATOR_EXTRAS, draft / "requirements.txt", development=True
        )
        (machine,) = [each for each in packages.PLATFORMS if each.machine == platform.machine()]
        packages.install(locked, machine, draft / "lib" / imagepython.NAME / "site-packages")

    return ensure_entry(cache.built / f"image-tests-{key}", cache.work, make)


def run(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments; return its exit status.

    Raises:
        ClusterError: Python of this version is neither here nor can be installed.
    """
    cache = Cache.from_environment(os.environ)
    python = environment(cache) / "bin" / "python"
    command = [
        *prefix(cache, [REPOSITORY, cache.root]),
        str(python),
        "-m",
        "pytest",
        "-q",
        "-m",
        "not cluster and not bench",
        *arguments,
    ]
    paths = {"PYTHONPATH": str(REPOSITORY / "operator")}  # in place of an installed `perdure`
    return subprocess.run(command, cwd=REPOSITORY, env={**os.environ, **paths}, check=False).returncode


def main() -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=f"Run tests on Python {PYTHON}, the version of the image.")
    parser.add_argument("--short", action="store_true", help="only the tests that the version matters most for")
    options, others = parser.parse_known_args()
    try:
        return run([*(SHORT if options.short else LONG), *others])
    except ClusterError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
