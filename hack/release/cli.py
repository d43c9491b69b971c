"""The command line of ``python hack/release``."""

import argparse
import os
import re
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cluster import commands
from cluster.console import say, stage
from cluster.errors import ClusterError
from cluster.paths import REPOSITORY, Cache
from cluster.tools import ensure_tools
from release import chart, evidence, image, licenses, packages, plugin, sbom
from release.files import entries, sha256, write_tar_gz
from release.source import Source, export

_REGISTRY = re.compile(r"[a-z0-9]+([.-][a-z0-9]+)*(:\d{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*")
_ADDRESS = re.compile(r"https?://[\w.:/%~-]*[\w%~-]", re.ASCII)


def parser() -> argparse.ArgumentParser:
    """Build the argument parser."""
    result = argparse.ArgumentParser(
        prog="python hack/release", description="Build everything that users install, from one commit."
    )
    result.add_argument(
        "verb", nargs="?", choices=("build", "licenses"), default="build", help="build, or only check the licenses"
    )
    result.add_argument("--version", default="", help="version to release; without it, a development build")
    result.add_argument(
        "--registry",
        default="localhost",
        help="registry and folder that the image will be pushed to (default: localhost)",
    )
    result.add_argument(
        "--address", default="https://localhost/perdure", help="URL that the files will be downloaded from, for krew"
    )
    result.add_argument("--key", type=Path, help="private key on P-256 to sign with; without it, nothing is signed")
    result.add_argument("--out", type=Path, default=REPOSITORY / "dist", help="folder to write to; it is replaced")
    return result


def check_places(registry: str, address: str) -> None:
    """Check where users will find the image and the files: these names are in the artifacts.

    Raises:
        ClusterError: One of them has another form.
    """
    if _REGISTRY.fullmatch(registry) is None:
        raise ClusterError(
            f"REGISTRY={registry} must be a registry, perhaps with a folder, such as registry.example.com/team, without a scheme"
        )
    if _ADDRESS.fullmatch(address) is None:
        raise ClusterError(
            f"ADDRESS={address} must be a URL without a slash at its end, such as https://downloads.example.com/v0.1.0"
        )


def build(arguments: argparse.Namespace, cache: Cache) -> None:
    """Build everything into a new folder, then replace the old one."""
    check_places(arguments.registry, arguments.address)
    signer = evidence.Signer.load(arguments.key) if arguments.key else None
    helm = ensure_tools(cache, ("helm",)) / "helm"
    # Not in the folder of the cache: what is there is removed when a cluster starts.
    with tempfile.TemporaryDirectory(prefix="perdure-release-") as folder:
        work = Path(folder)
        source = export(REPOSITORY, arguments.version, work / "source")
        say(f"perdure {source.version}, commit {source.commit[:12]}")
        target = work / "dist"
        target.mkdir()
        with stage("wheels and source distributions"):
            packages.build(source, target, cache.logs / "release-wheels.log")
        wheel = target / f"perdure-{source.python_version}-py3-none-any.whl"
        with stage("chart, manifests, schemas, and plugin"):
            package = chart.package(source, arguments.registry, target)
            chart.write_manifests(helm, package, target)
            _write_schemas(source, target)
            plugin.write(source, wheel, arguments.address, target)
        archive = target / f"perdure-image-{source.version}.tar"
        name = f"{arguments.registry}/perdure:{source.version}"
        built = image.Builder(cache, source, work).build(wheel, name, archive)
        with stage("bill of materials, checksums, and provenance"):
            sbom.write(source, built, sorted(target.iterdir()), target)
            digests = {file.name: sha256(file) for file in sorted(target.iterdir())}
            sums = evidence.write_checksums(digests, target)
            parameters = {"version": source.version, "registry": arguments.registry, "address": arguments.address}
            proof = evidence.write_provenance(evidence.statement(source, built, digests, parameters), signer, target)
            if signer is not None:
                evidence.write_signatures([sums, proof], signer, target)
        _replace(target, arguments.out)
    for file in sorted(arguments.out.iterdir()):
        say(f"  {file.stat().st_size:>12,} {file.name}")
    if signer is None:
        say("Not signed: KEY names no key.")


def check_licenses() -> None:
    """Check the licenses of all dependencies of the image, as they are installed here.

    Raises:
        ClusterError: A license is not allowed, or a dependency is not installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        locked = packages.requirements(REPOSITORY, packages.OPERATOR_EXTRAS, Path(folder) / "requirements.txt")
        names = {name for name, _ in packages.names_in(locked)}
    found = packages.metadata(Path(sysconfig.get_path("purelib")))
    if missing := sorted(names - found.keys()):
        raise ClusterError(f"These dependencies are not installed, run `make setup`: {', '.join(missing)}")
    licenses.check({name: licenses.license_of(found[name]) for name in names})


def _write_schemas(source: Source, target: Path) -> None:
    """Write the JSON Schemas of all kinds with the released code, as one archive."""
    folder = source.folder.parent / "schemas"
    commands.capture(
        [sys.executable, "-c", "from perdure.cli.app import main; main()", "schemas", str(folder)],
        environment={**os.environ, "PYTHONPATH": str(source.folder / "operator"), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    file = target / f"perdure-schemas-{source.version}.tar.gz"
    write_tar_gz(entries(folder), source.epoch, file)


def _replace(draft: Path, target: Path) -> None:
    """Move a folder to its place, which may be on another file system."""
    draft_copy = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copytree(draft, draft_copy)
    shutil.rmtree(target, ignore_errors=True)
    draft_copy.rename(target)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    began = time.monotonic()
    arguments = parser().parse_args(argv)
    try:
        if arguments.verb == "licenses":
            check_licenses()
            return 0
        build(arguments, Cache.from_environment(os.environ))
    except ClusterError as error:
        say(f"Error: {error}")
        return 1
    say(f"Total time: {time.monotonic() - began:.0f} s.")
    return 0
