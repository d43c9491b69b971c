"""Python packages: our wheels and source distributions, and the locked dependencies for any platform."""

import configparser
import os
import shutil
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from urllib.parse import unquote

from packaging import tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from cluster import commands
from cluster.debian import PYTHON
from cluster.errors import ClusterError
from cluster.paths import Cache
from release.source import Source

OPERATOR_EXTRAS = ("operator", "console")
"""What the image has besides the dependencies of the command, of flows, and of the client; as in the Dockerfile."""
_OLDEST_GLIBC, _GLIBC = 17, 40
"""Minor versions of glibc 2: the oldest that wheels are built for, and the newest one that uv knows; Debian 13 has 2.41."""


@dataclass(frozen=True, slots=True)
class Platform:
    """A platform of the image."""

    architecture: str
    """As images and Debian name it: ``amd64``."""
    machine: str
    """As Python names it: ``x86_64``."""

    @property
    def uv(self) -> str:
        """As uv names it."""
        return f"{self.machine}-manylinux_2_{_GLIBC}"

    def wheel_tags(self) -> list[tags.Tag]:
        """Tags of wheels that run on it, the best one first."""
        version = tuple(map(int, PYTHON.split(".")))
        names = [f"manylinux_2_{minor}_{self.machine}" for minor in range(_GLIBC, _OLDEST_GLIBC - 1, -1)]
        names += [f"manylinux2014_{self.machine}", f"linux_{self.machine}"]
        return [
            *tags.cpython_tags(version, platforms=names),
            *tags.compatible_tags(version, interpreter=f"cp{''.join(map(str, version))}", platforms=names),
        ]


PLATFORMS = (Platform("amd64", "x86_64"), Platform("arm64", "aarch64"))


@dataclass(frozen=True, slots=True)
class Package:
    """A locked package, and its wheel for a platform."""

    name: str
    version: str
    file: str
    """Name of the wheel."""
    sha256: str


def build(source: Source, target: Path, log: Path) -> list[Path]:
    """Build the wheels and source distributions of `perdure` and `perdure-activity` into an empty folder."""
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(source.epoch)}
    for folder in (source.folder, source.folder / "packages" / "perdure-activity"):
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(target)]
        commands.run_logged(command, log, environment=environment, folder=folder)
    return sorted(target.iterdir())


def requirements(folder: Path, extras: Sequence[str], target: Path, *, development: bool = False) -> Path:
    """Write the locked dependencies of a source tree, with their hashes, as pip reads them; also those of tests, or not."""
    flags = [flag for extra in extras for flag in ("--extra", extra)] + ([] if development else ["--no-dev"])
    command = [
        *(uv(), "export", "--quiet", "--frozen", "--no-emit-project", "--no-config", "--no-header"),
        *("--no-annotate", f"--project={folder}", f"--output-file={target}"),
    ]
    commands.capture([*command, *flags])
    return target


def install(wheels: Path, platform: Platform, target: Path) -> None:
    """Install locked dependencies for a platform, which need not be that of this machine. Nothing of them is executed."""
    commands.capture(
        [
            *(uv(), "pip", "install", "--quiet", "--no-config", "--no-deps", "--require-hashes", "--only-binary=:all:"),
            *("--no-compile-bytecode", f"--python-platform={platform.uv}", f"--python-version={PYTHON}"),
            *(f"--python={sys.executable}", "--link-mode=copy", f"--target={target}", f"--requirement={wheels}"),
        ]
    )
    clean(target)


def clean(site: Path) -> None:
    """Remove commands, which have the path of this machine's Python, and what differs between two installations."""
    shutil.rmtree(site / "bin", ignore_errors=True)
    (site / ".lock").unlink(missing_ok=True)
    for name in ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_cache.json"):
        for file in site.glob(f"*.dist-info/{name}"):
            file.unlink()


def commands_of(site: Path) -> list[tuple[str, str, str]]:
    """List the commands of the packages in a folder: their names, modules, and functions."""
    found = []
    for file in sorted(site.glob("*.dist-info/entry_points.txt")):
        parser = configparser.ConfigParser(delimiters=("=",))
        parser.optionxform = str  # type: ignore[assignment, method-assign]  # documented, and typed as a method
        parser.read(file, encoding="utf-8")
        if parser.has_section("console_scripts"):
            for name, target in sorted(parser.items("console_scripts")):
                module, _, function = target.partition(":")
                found.append((name, module.strip(), function.strip()))
    return found


def timestamp(epoch: int) -> str:
    """Write a time as RFC 3339."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def names_in(wheels: Path) -> set[tuple[str, ...]]:
    """Return the names and versions of locked dependencies."""
    lines = wheels.read_text(encoding="utf-8").splitlines()
    return {tuple(line.split()[0].split("==")) for line in lines if "==" in line and not line.startswith((" ", "#"))}


def locked(source: Source, wheels: Path, platform: Platform) -> list[Package]:
    """Find the wheel of each locked dependency for a platform in uv.lock.

    Args:
        source: The source, which has the lock.
        wheels: The locked dependencies, as `requirements` writes them.
        platform: The platform.
    """
    names = names_in(wheels)
    rank = {tag: index for index, tag in enumerate(platform.wheel_tags())}
    lock = tomllib.loads((source.folder / "uv.lock").read_text(encoding="utf-8"))
    found = []
    for package in lock["package"]:
        if (package["name"], package.get("version")) in names:
            best = min(
                (min((rank.get(tag, len(rank)) for tag in parse_wheel_filename(name)[3])), name, wheel["hash"])
                for wheel in package.get("wheels", ())
                for name in [unquote(wheel["url"].rpartition("/")[2])]
            )
            if best[0] == len(rank):
                raise ClusterError(f"{package['name']} {package['version']} has no wheel for {platform.uv}")
            found.append(Package(package["name"], package["version"], best[1], best[2].removeprefix("sha256:")))
    return found


def metadata(site: Path) -> dict[str, Message]:
    """Read the metadata of installed packages, by their normalized names."""
    parsed = (HeaderParser().parsestr(file.read_text("utf-8")) for file in site.glob("*.dist-info/METADATA"))
    return {canonicalize_name(each["Name"]): each for each in parsed}


def uv() -> str:
    """Find uv, where the Makefile finds it."""
    return shutil.which("uv") or str(Cache.from_environment(os.environ).root / "uv" / "bin" / "uv")
