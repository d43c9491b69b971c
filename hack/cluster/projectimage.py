"""The project's own image, built from its Dockerfile into an image archive.

With a registry, ``docker build`` builds it. Without one, buildah builds the same Dockerfile
on a base image made of Debian packages. buildah needs no daemon and caches layers, so a
change of Python sources only rebuilds the last steps.
"""

import configparser
import io
import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path

from cluster import commands, debian, nodeimage
from cluster.archive import Image, Layer, write_archive
from cluster.console import stage
from cluster.docker import Docker, find_docker
from cluster.errors import ClusterError
from cluster.paths import Cache
from cluster.registry import registry_answers
from cluster.store import ensure_entry, locked, work_folder

CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
PIP_CONFIG = "/etc/pip.conf"


def build(cache: Cache, dockerfile: Path, context: Path, tag: str, output: Path) -> None:
    """Build the image and write it as an archive."""
    for file in (dockerfile, context):
        if not file.exists():
            raise ClusterError(f"There is no {file}.")
    output.parent.mkdir(parents=True, exist_ok=True)
    with locked(cache.locks / "build"), work_folder(cache.work, "image") as work:
        draft = work / "image.tar"
        if docker := docker_with_registry(cache):
            with stage(f"{tag}: docker build"):
                commands.run_logged(
                    [
                        *("docker", "build", f"--file={dockerfile}", f"--tag={tag}"),
                        *pip_build_arguments(os.environ),
                        *revision_arguments(context),
                        str(context),
                    ],
                    cache.logs / "image.log",
                    environment={**os.environ, **docker.environment},
                )
                docker.run("save", f"--output={draft}", tag, timeout=None)
        else:
            build_with_buildah(cache, work, dockerfile=dockerfile, context=context, tag=tag, draft=draft)
        # Across file systems, a move is a copy: this way, the target never contains half a file.
        temporary = output.with_name(f".{output.name}.{os.getpid()}")
        shutil.move(draft, temporary)
        temporary.rename(output)


def docker_with_registry(cache: Cache) -> Docker | None:
    """Return the machine's Docker if it can pull the base image; None: the image is built without it, from Debian packages."""
    docker = find_docker(cache)
    return docker if docker and not docker.is_ours and registry_answers() else None


def build_with_buildah(cache: Cache, work: Path, *, dockerfile: Path, context: Path, tag: str, draft: Path) -> None:
    """Build the image without Docker or a registry."""
    debian.require_packages(debian.BUILDAH_PACKAGES, cache.logs / "apt.log")
    log = cache.logs / "image.log"
    # A build that failed or was killed leaves its container mounted, which would block this one.
    commands.succeeds([*buildah(cache, "rm"), "--all"])
    base = ensure_base(cache)
    with stage(f"{tag}: buildah build"):
        commands.run_logged(
            [
                *commands.DIE_WITH_ME,
                *buildah(cache, "build"),
                "--isolation=chroot",
                "--network=host",
                "--layers",
                # Never from a registry: if one were reachable, Docker would have built the image.
                "--pull=never",
                f"--build-arg=BASE={base}",
                *revision_arguments(context),
                *volumes(os.environ, work),
                f"--file={dockerfile}",
                f"--tag={tag}",
                str(context),
            ],
            log,
        )
    with stage(f"{tag}: write the archive"):
        commands.run_logged(
            [
                *commands.DIE_WITH_ME,
                *buildah(cache, "push"),
                tag,
                f"docker-archive:{draft}:{tag}",
            ],
            log,
        )


def buildah(cache: Cache, verb: str) -> list[str]:
    """Build a buildah command with its storage under the cache folder."""
    return [
        "buildah",
        f"--root={cache.buildah / 'storage'}",
        f"--runroot={cache.buildah / 'run'}",
        "--storage-driver=overlay",
        verb,
    ]


def ensure_base(cache: Cache) -> str:
    """Return the name of the base image, imported once into buildah's store."""
    root = nodeimage.python_base(cache)
    name = f"perdure.local/python:{root.stem}"
    if not commands.succeeds([*buildah(cache, "inspect"), "--type=image", name]):

        def make(draft: Path) -> None:
            image = Image((name,), (Layer.of(root),), {"Cmd": ["python3"]})
            with draft.open("wb") as output:
                write_archive([image], platform.machine(), output)

        with stage(f"import {name}"):
            archive = ensure_entry(cache.work / f"{root.stem}-image.tar", cache.work, make)
            commands.run_logged(
                [*buildah(cache, "pull"), f"docker-archive:{archive}"],
                cache.logs / "image-base.log",
            )
            archive.unlink()
    return name


def pip_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Convert pip's settings in the environment to a pip.conf."""
    return {
        name.removeprefix("PIP_").lower().replace("_", "-"): value
        for name, value in sorted(environment.items())
        if name.startswith("PIP_") and value and name != "PIP_CONFIG_FILE"
    }


def pip_build_arguments(environment: Mapping[str, str]) -> list[str]:
    """Return build arguments for the same settings; docker reads them from its environment."""
    names = [f"PIP_{name.upper().replace('-', '_')}" for name in pip_settings(environment)]
    return [f"--build-arg={name}" for name in names]


def revision_arguments(context: Path) -> list[str]:
    """Return a build argument with the commit of the build context; none if it is not a checkout."""
    try:
        commit = commands.capture(["git", "-C", str(context), "rev-parse", "--verify", "HEAD"]).strip()
    except ClusterError:
        return []
    return [f"--build-arg=REVISION={commit}"]


def volumes(environment: Mapping[str, str], work: Path) -> list[str]:
    """Return mounts with which pip in the build can access what pip on the host can access.

    Mounted, not copied, so that the image contains neither the settings nor the certificates.
    """
    mounts = {CA_BUNDLE: str(CA_BUNDLE)} if CA_BUNDLE.exists() else {}
    settings = pip_settings(environment)
    if settings:
        parser = configparser.RawConfigParser()
        parser["global"] = settings
        text = io.StringIO()
        parser.write(text)
        file = work / "pip.conf"
        file.write_text(text.getvalue())
        mounts[file] = PIP_CONFIG
        for value in settings.values():
            for word in value.split():
                path = Path(word)
                if path.is_absolute() and path.is_dir():
                    mounts[path] = str(path)
    return [f"--volume={source}:{target}:ro" for source, target in mounts.items()]
