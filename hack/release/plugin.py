"""The command line as a plugin of kubectl: an archive with a launcher, and the manifest for krew.

The launcher installs the command into a virtual environment when it is first started, because its dependencies are built for each
platform and version of Python.
"""

from pathlib import Path

from release import packages
from release.files import Entry, write_tar_gz
from release.source import Source

_LAUNCHER = """#!/bin/sh
# kubectl perdure {version}: installs itself into a virtual environment when it is first started. It needs Python 3.11 or later
# with venv, and pip's settings (PIP_INDEX_URL, PIP_FIND_LINKS) if the index of Python packages is not reachable.
set -eu
file=$0
while [ -h "$file" ]; do
  target=$(readlink "$file")
  case $target in /*) file=$target ;; *) file=$(dirname "$file")/$target ;; esac
done
here=$(cd "$(dirname "$file")" && pwd)
home=${{XDG_DATA_HOME:-$HOME/.local/share}}/perdure/kubectl-perdure-{version}
if [ ! -x "$home/bin/kubectl-perdure" ]; then
  python=${{PERDURE_PYTHON:-python3}}
  "$python" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' || {{
    echo "kubectl perdure needs Python 3.11 or later with venv: install it, or name it in PERDURE_PYTHON" >&2
    exit 1
  }}
  echo "Installing kubectl perdure {version} into $home ..." >&2
  draft=$home.$$
  trap 'rm -rf "$draft"' EXIT
  mkdir -p "$(dirname "$home")"
  "$python" -m venv "$draft"
  "$draft/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$here/requirements.txt" >&2
  "$draft/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-index "$here/{wheel}" >&2
  # Its commands name the folder in which they were installed.
  rm -rf "$home"
  mv "$draft" "$home"
  "$home/bin/python" -c 'import sys; from pathlib import Path
for file in Path(sys.argv[2], "bin").iterdir():
    if file.is_file() and not file.is_symlink():
        file.write_bytes(file.read_bytes().replace(sys.argv[1].encode(), sys.argv[2].encode()))' "$draft" "$home"
fi
exec "$home/bin/kubectl-perdure" "$@"
"""

_MANIFEST = """apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: perdure
spec:
  version: v{version}
  homepage: {address}
  shortDescription: Start, inspect, and control durable workflows
  description: |
    Starts, inspects, and controls the workflows that Perdure runs in a cluster.
    The first start installs the command into a virtual environment of Python.
  caveats: |
    Needs Python 3.11 or later with venv.
  platforms:
  - selector:
      matchExpressions:
      - {{key: os, operator: In, values: [linux, darwin]}}
    uri: {address}/{archive}
    sha256: {digest}
    bin: kubectl-perdure
    files:
    - {{from: kubectl-perdure, to: .}}
    - {{from: requirements.txt, to: .}}
    - {{from: {wheel}, to: .}}
    - {{from: LICENSE, to: .}}
"""


def write(source: Source, wheel: Path, address: str, target: Path) -> list[Path]:
    """Write the archive and the manifest.

    Args:
        source: The source.
        wheel: The wheel of `perdure`.
        address: The URL of the folder from which users will download the archive.
        target: The folder to write to.
    """
    archive = target / f"kubectl-perdure-{source.version}.tar.gz"
    locked = packages.requirements(source.folder, (), source.folder.parent / "plugin-requirements.txt")
    launcher = _LAUNCHER.format(version=source.version, wheel=wheel.name)
    content = [
        Entry("kubectl-perdure", launcher.encode(), 0o755),
        Entry("requirements.txt", locked),
        Entry(wheel.name, wheel),
        Entry("LICENSE", source.folder / "LICENSE"),
    ]
    digests = write_tar_gz(content, source.epoch, archive)
    manifest = target / "kubectl-perdure.yaml"
    manifest.write_text(
        _MANIFEST.format(
            version=source.version, address=address, archive=archive.name, digest=digests.compressed, wheel=wheel.name
        ),
        encoding="utf-8",
    )
    return [archive, manifest]
