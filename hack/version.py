"""The version of the next release: `make version VERSION=0.2.0` sets it and its copies; `--check` finds copies that differ.

Its only source is the line `VERSION = "…"` in operator/perdure/__init__.py. The chart, and the image in examples and
documentation, need copies, because people read and use them without any tool of this project.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster.errors import ClusterError
from cluster.paths import REPOSITORY

SOURCE = "operator/perdure/__init__.py"
CHART = "charts/perdure/Chart.yaml"

_DECLARED = re.compile(r'^(VERSION = ")(.+)(")$', re.MULTILINE)
_CHART = re.compile(r"^((?:version|appVersion): )(.+)(-dev)$", re.MULTILINE)
_IMAGE = re.compile(r"(localhost/perdure:)(\d+\.\d+\.\d+)(\b)")
_FORM = re.compile(r"\d+\.\d+\.\d+")
_RECORDED = ("CHANGELOG.md", "tests/golden/", "tests/fidelity/recorded/")
"""Files about other versions."""


def declared_version(folder: Path) -> str:
    """Read the version that a source tree declares.

    Raises:
        ClusterError: It declares none.
    """
    found = _DECLARED.search((folder / SOURCE).read_text(encoding="utf-8"))
    if found is None:
        raise ClusterError(f'{SOURCE} must have a line VERSION = "…"')
    return found[2]


def set_version(root: Path, version: str) -> list[str]:
    """Set the version and its copies, and return the paths of the files that changed.

    Raises:
        ClusterError: The version has another form, or the chart has no lines for it.
    """
    if _FORM.fullmatch(version) is None:
        raise ClusterError(f"VERSION={version} must be three numbers, such as 0.2.0")
    changed = []
    for path, pattern in _places(root):
        file = root / path
        before = file.read_text(encoding="utf-8")
        after = pattern.sub(rf"\g<1>{version}\g<3>", before)
        if after != before:
            file.write_text(after, encoding="utf-8")
            changed.append(path)
    return changed


def differing(root: Path) -> list[str]:
    """Return the copies that differ from the declared version, as `path: version`.

    Raises:
        ClusterError: The source or the chart has no version.
    """
    version = declared_version(root)
    found = [
        (path, match[2])
        for path, pattern in _places(root)
        for match in pattern.finditer((root / path).read_text(encoding="utf-8"))
    ]
    if sum(path == CHART for path, _ in found) != 2:  # noqa: PLR2004 - version and appVersion
        raise ClusterError(f"{CHART} must have `version` and `appVersion`, and both must end with -dev")
    return sorted({f"{path}: {copy}" for path, copy in found if copy != version})


def _places(root: Path) -> list[tuple[str, re.Pattern[str]]]:
    """Return each file that may have the version, and the pattern that finds it."""
    listed = subprocess.run(
        ["git", "grep", "-I", "-l", "localhost/perdure:[0-9]"], cwd=root, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    images = [(path, _IMAGE) for path in listed if not path.startswith(_RECORDED)]
    return [(SOURCE, _DECLARED), (CHART, _CHART), *images]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Set the version of the next release, or check its copies.")
    parser.add_argument("version", nargs="?", help="the version to set")
    parser.add_argument("--check", action="store_true", help="change nothing, and fail if a copy differs")
    arguments = parser.parse_args(argv)
    try:
        if arguments.version:
            for path in set_version(REPOSITORY, arguments.version):
                print(path)
        elif not arguments.check:
            print(declared_version(REPOSITORY))
        wrong = differing(REPOSITORY)
    except ClusterError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    for each in wrong:
        print(f"{each} differs from the version in {SOURCE}: run `make version`", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
