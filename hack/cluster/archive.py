"""Image archives in the format of ``docker save``, written without any image tool."""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Machine name of the kernel -> machine name in images."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A tar file that is one layer of an image."""

    file: Path
    digest: str

    @classmethod
    def of(cls, file: Path) -> "Layer":
        """Compute the digest of a tar file."""
        with file.open("rb") as content:
            return cls(file, hashlib.file_digest(content, "sha256").hexdigest())


@dataclass(frozen=True, slots=True)
class Image:
    """An image to write: names, layers from the bottom up, and the command."""

    tags: tuple[str, ...]
    layers: tuple[Layer, ...]
    config: Mapping[str, object] = field(default_factory=dict)


def write_archive(images: Sequence[Image], machine: str, output: IO[bytes]) -> None:
    """Write images as one stream. Shared layers are written once."""
    with tarfile.open(fileobj=output, mode="w|") as archive:
        for layer in {layer.digest: layer for image in images for layer in image.layers}.values():
            archive.add(layer.file, f"{layer.digest}.tar", recursive=False)
        manifest = []
        for image in images:
            config = json.dumps(image_config(image, machine), sort_keys=True).encode()
            name = f"{hashlib.sha256(config).hexdigest()}.json"
            add_bytes(archive, name, config)
            manifest.append(
                {
                    "Config": name,
                    "RepoTags": list(image.tags),
                    "Layers": [f"{layer.digest}.tar" for layer in image.layers],
                }
            )
        add_bytes(archive, "manifest.json", json.dumps(manifest).encode())


def image_config(image: Image, machine: str) -> dict[str, object]:
    """Return the config blob of an image."""
    return {
        "architecture": ARCHITECTURES[machine],
        "os": "linux",
        # Images with the same layers still need separate configs: a container runtime
        # that garbage-collects by config would treat all names as one image.
        "config": {"Env": [PATH], "Labels": {"name": image.tags[0]}, **image.config},
        # buildah rejects an image whose history does not cover each layer.
        "history": [{"created_by": "hack/cluster"}] * len(image.layers),
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{x.digest}" for x in image.layers]},
    }


def add_bytes(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Add a small file to a tar archive."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))
