"""The node image that is used if ``kindest/node`` cannot be pulled.

It has the same layout as kind's own: a Debian root with systemd, the files of kind's base
image, the Kubernetes binaries, and the images that kubeadm requires, preloaded into the
containerd of the node.
"""

import contextlib
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cluster import commands, debian, gobuild
from cluster.archive import Image, Layer, write_archive
from cluster.console import stage
from cluster.docker import Docker
from cluster.errors import ClusterError, CommandError
from cluster.gobuild import GoProgram
from cluster.paths import NODE_IMAGE, Cache
from cluster.store import files_below, fingerprint, work_folder

REPOSITORY = "perdure.local/node"

PYTHON_IMAGE = f"perdure.local/python:{debian.PYTHON}"
"""A plain Python image on every node, for users' activities and for our DNS check."""

COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "etcd")

METADATA = {
    "Env": ["container=docker", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
    "Entrypoint": ["/usr/local/bin/entrypoint", "/sbin/init"],
    # systemd exits on this signal; on SIGTERM, it only re-executes itself.
    "StopSignal": "SIGRTMIN+3",
}


def image_name(kubernetes: GoProgram) -> str:
    """Return the name of the node image for the current sources: its tag is their hash."""
    folder = Path(__file__).parent
    recipe = [folder / name for name in ("nodeimage.py", "archive.py", "debian.py")]
    scripts = [NODE_IMAGE / "assemble.sh", NODE_IMAGE / "preload.sh"]
    key = fingerprint(
        files=[*recipe, *scripts, *files_below(NODE_IMAGE / "files")],
        words=[p.key() for p in (kubernetes, *gobuild.NODE_PROGRAMS, gobuild.KIND)],
    )
    return f"{REPOSITORY}:{kubernetes.version}-{key}"


def python_base(cache: Cache) -> Path:
    """Return the root file system of the plain Python image."""
    return debian.root_file_system(cache, "python", debian.PYTHON_PACKAGES, suite=debian.PYTHON_SUITE)


def ensure_node_image(cache: Cache, docker: Docker, kubernetes: GoProgram) -> str:
    """Return the name of the node image once Docker has it; the caller holds the build lock."""
    name = image_name(kubernetes)
    if name in docker.images():
        return name
    debian.require_packages(debian.BUILD_PACKAGES, cache.logs / "apt.log")
    binaries = {program.name: gobuild.build(cache, program) for program in (kubernetes, *gobuild.NODE_PROGRAMS)}
    node = debian.root_file_system(cache, "node", debian.NODE_PACKAGES)
    proxy = debian.root_file_system(cache, "proxy", debian.PROXY_PACKAGES, variant="extract")
    python = python_base(cache)
    with work_folder(cache.work, "node-image") as work:
        with stage("node image: assemble the root"):
            required = required_images(kubernetes, binaries["kubernetes"], work)
            pause = next(image for image in required if "/pause:" in image)
            root = assemble(cache, work, node, binaries, version=kubernetes.version, pause=pause)
        with stage("node image: preload the images of the control plane"):
            images = control_plane_images(work, binaries, required, proxy)
            images.append(Image((PYTHON_IMAGE,), (Layer.of(python),), {"Cmd": ["python3"]}))
            preload(cache, work, root, images)
        with stage(f"node image: load {name} into Docker"):
            layer = work / "root.tar"
            commands.capture(["tar", "-C", str(root), "--numeric-owner", "-cf", str(layer), "."])
            load_image(docker, Image((name,), (Layer.of(layer),), METADATA))
    remove_superseded(docker, name)
    return name


def remove_superseded(docker: Docker, new: str = "") -> None:
    """Remove node images of earlier sources that no cluster uses, but not the new one: the sources may have changed meanwhile.

    Args:
        docker: The daemon.
        new: Name of the image that was just built; empty: none was.
    """
    current = {new, *(image_name(each) for each in (gobuild.KUBERNETES, *gobuild.OTHER_KUBERNETES))}
    for image in docker.images():
        if image.startswith(f"{REPOSITORY}:") and image not in current:
            with contextlib.suppress(CommandError):
                docker.run("rmi", image)


def required_images(kubernetes: GoProgram, built: Path, work: Path) -> list[str]:
    """List the images that our kubeadm requires, so that no tag is defined twice."""
    kubeadm = work / "kubeadm"
    kubeadm.symlink_to(built / "kubernetes")
    version = kubernetes.version
    images = commands.capture([str(kubeadm), "config", "images", "list", "--kubernetes-version", version]).split()
    etcd = kubernetes.required("go.etcd.io/etcd/server/v3").removeprefix("v")
    # One CoreDNS serves all versions of Kubernetes. Only the default one requires exactly this version.
    coredns = f":{gobuild.COREDNS.version}" if kubernetes == gobuild.KUBERNETES else ":"
    for part in (f"/etcd:{etcd}-", f"/coredns{coredns}"):
        if not any(part in image for image in images):
            raise ClusterError(f"kubeadm {version} wants {images}, but none of them is {part}")
    return images


def assemble(cache: Cache, work: Path, node: Path, binaries: dict[str, Path], *, version: str, pause: str) -> Path:
    """Assemble the root of the node image."""
    root = work / "root"
    root.mkdir()
    together = work / "binaries"
    together.mkdir()
    for folder in binaries.values():
        for binary in folder.iterdir():
            (together / binary.name).symlink_to(binary)
    kind_files = gobuild.module_folder(gobuild.KIND) / "images" / "base" / "files"
    commands.run_logged(
        [
            *commands.SANDBOX,
            str(NODE_IMAGE / "assemble.sh"),
            *map(str, (node, root, kind_files, NODE_IMAGE / "files", together)),
            version,
            pause,
        ],
        cache.logs / "assemble.log",
    )
    return root


def control_plane_images(work: Path, binaries: dict[str, Path], required: Sequence[str], proxy: Path) -> list[Image]:
    """Create the images that kubeadm requires from our binaries."""
    kubernetes = components_layer(work, binaries["kubernetes"] / "kubernetes")
    tools = proxy_tools_layer(work)
    coredns = layer_of_files(work, "coredns", {"coredns": binaries["coredns"] / "coredns"})
    pause = layer_of_files(work, "pause", {"pause": compile_pause(work)})

    def image(tag: str) -> Image:
        match tag.rpartition("/")[2].partition(":")[0]:
            case "coredns":
                return Image((tag,), (coredns,), {"Entrypoint": ["/coredns"]})
            case "pause":
                return Image((tag,), (pause,), {"Entrypoint": ["/pause"]})
            case "kube-proxy":
                # The big layer is the lowest one, so that it is unpacked once for all components.
                return Image((tag,), (kubernetes, Layer.of(proxy), tools))
            case name if name in COMPONENTS:
                return Image((tag,), (kubernetes,))
            case name:
                raise ClusterError(f"kubeadm wants {name}, which is not built here")

    return [image(tag) for tag in required]


def components_layer(work: Path, binary: Path) -> Layer:
    """Copy one binary, and link to it for each component."""
    root = work / "components"
    folder = root / "usr" / "local" / "bin"
    folder.mkdir(parents=True)
    # A hard link if the file system supports it; tar reads the content in both cases.
    commands.capture(["cp", "--reflink=auto", str(binary), str(folder / "kubernetes")])
    for name in COMPONENTS:
        (folder / name).symlink_to("kubernetes")
    return layer_of_folder(root)


def proxy_tools_layer(work: Path) -> Layer:
    """Create the links that Debian's install scripts would create for iptables."""
    root = work / "proxy-tools"
    folder = root / "usr" / "sbin"
    folder.mkdir(parents=True)
    for family in ("iptables", "ip6tables"):
        for suffix in ("", "-save", "-restore"):
            (folder / f"{family}{suffix}").symlink_to("xtables-nft-multi")
    return layer_of_folder(root)


def layer_of_files(work: Path, name: str, files: dict[str, Path]) -> Layer:
    """Create a layer from some files in the root folder."""
    root = work / f"{name}-root"
    root.mkdir()
    for target, source in files.items():
        commands.capture(["install", "-m755", str(source), str(root / target)])
    return layer_of_folder(root)


def layer_of_folder(root: Path) -> Layer:
    """Create a layer from a folder: the same bytes for the same content."""
    layer = root.with_suffix(".tar")
    same = ["--sort=name", "--mtime=@0", "--owner=0", "--group=0"]
    commands.capture(["tar", "-C", str(root), *same, "-cf", str(layer), "."])
    return Layer.of(layer)


def compile_pause(work: Path) -> Path:
    """Compile the pause program from Kubernetes' source; as a C program, it uses little memory."""
    source = gobuild.module_folder(gobuild.KUBERNETES) / "build" / "pause" / "linux" / "pause.c"
    pause = work / "pause"
    commands.capture(["gcc", "-Os", "-static", "-o", str(pause), str(source)])
    return pause


def preload(cache: Cache, work: Path, root: Path, images: Sequence[Image]) -> None:
    """Import images into the containerd store inside the root."""
    archive = work / "images.tar"
    with archive.open("wb") as output:
        write_archive(images, platform.machine(), output)
    commands.run_logged(
        [
            *commands.SANDBOX,
            str(NODE_IMAGE / "preload.sh"),
            str(root / "usr" / "local" / "bin"),
            str(root / "var" / "lib" / "containerd"),
            str(archive),
        ],
        cache.logs / "preload.log",
    )


def load_image(docker: Docker, image: Image) -> None:
    """Stream an image into Docker, without an archive on disk."""
    with subprocess.Popen(
        ["docker", "load", "--quiet"],
        env={**os.environ, **docker.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as loading:
        assert loading.stdin is not None
        write_archive([image], platform.machine(), loading.stdin)
        _, errors = loading.communicate()
    if loading.returncode:
        raise ClusterError(f"docker load failed: {errors.decode(errors='replace')}")
