"""The image of the operator for several platforms, as one OCI archive; built without a container engine.

Its content is that of the Dockerfile: a Debian base with Python, one virtual environment in /venv with the locked dependencies,
and Perdure. Every file comes from a Debian package, a locked wheel, or our wheel, so an image for another architecture is built
by unpacking its packages.
"""

import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster import commands, imagepython
from cluster.console import stage
from cluster.debian import PYTHON
from cluster.paths import Cache
from release import debian, packages
from release.files import Entry, entries, write_tar, write_tar_gz
from release.packages import OPERATOR_EXTRAS, PLATFORMS, Package, Platform
from release.source import Source

Json = dict[str, object]

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"

_HOME = "/tmp"  # noqa: S108 - the only folder that a pod can write to
_SITE = f"venv/lib/python{PYTHON}/site-packages"
_CONFIGURATION = f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {PYTHON}\n"
_COMMAND = """#!/venv/bin/python
import sys
from {module} import {function}
sys.exit({function}())
"""


@dataclass(frozen=True, slots=True)
class PlatformImage:
    """The image for one platform, and what it is made of."""

    platform: Platform
    debs: tuple[debian.Deb, ...]
    wheels: tuple[Package, ...]
    site: Path
    """Folder with the installed dependencies, for their metadata."""
    manifest: Json
    """The descriptor of its manifest."""


@dataclass(frozen=True, slots=True)
class Blobs:
    """The blobs of an OCI layout."""

    folder: Path

    def add(self, content: bytes, media_type: str, **fields: object) -> Json:
        """Add a blob and return its descriptor."""
        digest = hashlib.sha256(content).hexdigest()
        (self.folder / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content), **fields}

    def add_json(self, content: Json, media_type: str, **fields: object) -> Json:
        """Add a document and return its descriptor."""
        return self.add(json.dumps(content, sort_keys=True, separators=(",", ":")).encode(), media_type, **fields)

    def add_layer(self, content: Iterable[Entry], epoch: int) -> tuple[Json, str]:
        """Add a layer; return its descriptor and the digest of its uncompressed form."""
        with tempfile.NamedTemporaryFile(dir=self.folder, delete=False) as draft:
            file = Path(draft.name)
        digests = write_tar_gz(content, epoch, file)
        file.chmod(0o644)
        size = file.stat().st_size
        file.rename(self.folder / digests.compressed)
        layer: Json = {"mediaType": _LAYER, "digest": f"sha256:{digests.compressed}", "size": size}
        return layer, f"sha256:{digests.uncompressed}"


@dataclass(frozen=True, slots=True)
class Builder:
    """Builds the image for all platforms."""

    cache: Cache
    """The cache of the cluster scripts, for logs."""
    source: Source
    work: Path
    """A folder for intermediate files."""

    def build(self, wheel: Path, name: str, target: Path) -> list[PlatformImage]:
        """Build the image into one archive.

        Args:
            wheel: The wheel of `perdure`.
            name: The name of the image, such as ``registry.example.com/perdure:0.1.0``.
            target: The archive to write.
        """
        layout = self.work / "layout"
        (layout / "blobs" / "sha256").mkdir(parents=True)
        blobs = Blobs(layout / "blobs" / "sha256")
        locked = packages.requirements(self.source.folder, OPERATOR_EXTRAS, self.work / "requirements.txt")
        application = self._application(wheel)
        built = [self._platform(platform, locked, application, blobs) for platform in PLATFORMS]
        annotations = _annotations(self.source)
        manifests = [image.manifest for image in built]
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests, "annotations": annotations}
        names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": self.source.version}
        described = blobs.add_json(index, _INDEX, annotations={**annotations, **names})
        (layout / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        (layout / "index.json").write_text(
            json.dumps({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [described]}, sort_keys=True)
        )
        with stage(f"write {target.name}"), target.open("wb") as output:
            write_tar(entries(layout), self.source.epoch, output)
        return built

    @property
    def _python(self) -> list[str]:
        """The beginning of a command: Python of the image's version, for files of the intermediate folder."""
        return [*imagepython.prefix(self.cache, [self.work]), imagepython.NAME]

    def _platform(self, platform: Platform, locked: Path, application: Sequence[Entry], blobs: Blobs) -> PlatformImage:
        source, architecture = self.source, platform.architecture
        with stage(f"image for {architecture}: Debian packages"):
            root = debian.unpack(self.cache, source, architecture, self.work)
            library = f"usr/lib/python{PYTHON}"
            debian.compile_library(self._python, root.folder / library, f"/{library}", epoch=source.epoch)
        with stage(f"image for {architecture}: locked wheels"):
            site = self.work / f"site-{architecture}"
            packages.install(locked, platform, site)
            debian.check_libraries(root, site)
            debian.compile_library(self._python, site, f"/{_SITE}", epoch=source.epoch)
        with stage(f"image for {architecture}: layers"):
            contents = (
                debian.base(root, entries(root.folder)),
                [*_environment(), *entries(site, _SITE)],
                application,
            )
            layers = [blobs.add_layer(content, source.epoch) for content in contents]
        shutil.rmtree(root.folder)
        config = blobs.add_json(_config(source, platform, [digest for _, digest in layers]), _CONFIG)
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": config,
            "layers": [layer for layer, _ in layers],
            "annotations": _annotations(source),
        }
        described = blobs.add_json(manifest, _MANIFEST, platform={"architecture": architecture, "os": "linux"})
        return PlatformImage(platform, root.debs, tuple(packages.locked(source, locked, platform)), site, described)

    def _application(self, wheel: Path) -> list[Entry]:
        """Install Perdure itself from its wheel; its layer is the same for all platforms."""
        site = self.work / "application"
        install = ("pip", "install", "--quiet", "--no-config", "--no-deps", "--no-index", "--link-mode=copy")
        where = (f"--python={sys.executable}", f"--target={site}", "--no-compile-bytecode")
        commands.capture([packages.uv(), *install, *where, str(wheel)])
        packages.clean(site)
        debian.compile_library(self._python, site, f"/{_SITE}", epoch=self.source.epoch)
        scripts = [
            Entry(f"venv/bin/{name}", _COMMAND.format(module=module, function=function).encode(), 0o755)
            for name, module, function in packages.commands_of(site)
        ]
        return [*scripts, *entries(site, _SITE)]


def _environment() -> list[Entry]:
    """An empty virtual environment."""
    folders = ("venv", "venv/bin")
    return [
        *(Entry(name, mode=0o755, folder=True) for name in folders),
        Entry("venv/pyvenv.cfg", _CONFIGURATION.encode()),
        *(Entry(f"venv/bin/{name}", link="/usr/bin/python3") for name in ("python", "python3", f"python{PYTHON}")),
    ]


def _config(source: Source, platform: Platform, layers: Sequence[str]) -> Json:
    time = packages.timestamp(source.epoch)
    return {
        "architecture": platform.architecture,
        "os": "linux",
        "created": time,
        "config": {
            "Entrypoint": ["perdure-operator"],
            "Env": [
                "PATH=/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                f"HOME={_HOME}",
                "LANG=C.UTF-8",
                "PYTHONDONTWRITEBYTECODE=1",
                "PYTHONUNBUFFERED=1",
                f"PERDURE_REVISION={source.commit}",
            ],
            "ExposedPorts": {"8080/tcp": {}},
            "Labels": _annotations(source),
            "User": "65532:65532",
            "WorkingDir": _HOME,
        },
        "rootfs": {"type": "layers", "diff_ids": list(layers)},
        "history": [
            {"created": time, "created_by": f"make release: {what}"}
            for what in ("Debian packages", "locked dependencies", "perdure")
        ],
    }


def _annotations(source: Source) -> Mapping[str, str]:
    return {
        "org.opencontainers.image.title": "Perdure",
        "org.opencontainers.image.description": "Durable workflows with nothing but Kubernetes",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": source.version,
        "org.opencontainers.image.revision": source.commit,
        "org.opencontainers.image.created": packages.timestamp(source.epoch),
    }
