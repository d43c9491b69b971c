"""The version of the next release: `make version VERSION=0.2.0` sets it and its copy; `--check` finds a copy that differs.

Its only source is the line `VERSION = "…"` in operator/perdure/__init__.py. The chart needs a copy, because Helm reads it without
any tool of this project.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster.errors import ClusterError
from cluster.paths import REPOSITORY

SOURCE = "operator/perdure/__init__.py"
CHART = "charts/perdure/Chart.yaml"

_DECLARED = re.compile(r'^(VERSION = ")(.+)(")$', re.MULTILINE)
_CHART = re.compile(r"^((?:version|appVersion): )(.+)(-dev)$", re.MULTILINE)
_FORM = re.compile(r"\d+\.\d+\.\d+")


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
    """Set the version and its copy in the chart, and return the paths of the files that changed.

    Raises:
        ClusterError: The version has another form.
    """
    if _FORM.fullmatch(version) is None:
        raise ClusterError(f"VERSION={version} must be three numbers, such as 0.2.0")
    changed = []
    for path, pattern in ((SOURCE, _DECLARED), (CHART, _CHART)):
        file = root / path
        before = file.read_text(encoding="utf-8")
        after = pattern.sub(rf"\g<1>{version}\g<3>", before)
        if after != before:
            file.write_text(after, encoding="utf-8")
            changed.append(path)
    return changed


def differing(root: Path) -> list[str]:
    """Return the versions in the chart that differ from the declared one.

    Raises:
        ClusterError: The source or the chart has no version.
    """
    version = declared_version(root)
    copies = [match[2] for match in _CHART.finditer((root / CHART).read_text(encoding="utf-8"))]
    if len(copies) != 2:  # noqa: PLR2004 - version and appVersion
        raise ClusterError(f"{CHART} must have `version` and `appVersion`, and both must end with -dev")
    return sorted({copy for copy in copies if copy != version})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description="Set the version of the next release, or check its copy in the chart.")
    parser.add_argument("version", nargs="?", help="the version to set")
    parser.add_argument("--check", action="store_true", help="change nothing, and fail if the copy differs")
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
        print(f"{CHART} has {each}, which differs from the version in {SOURCE}: run `make version`", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
